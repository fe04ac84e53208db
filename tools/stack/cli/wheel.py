# SPDX-License-Identifier: Apache-2.0
"""`stack wheel`: inspect a wheel or an installed package, compare two wheels, and index a folder of wheels."""

from pathlib import Path

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.cli.common import interpreter, json_option, one_line, print_json
from stack.wheels import comparison, inspection, simple
from stack.wheels.inspection import Report


@click.group("wheel")
def command() -> None:
    """Inspect and compare wheels, and publish a folder of them."""


@command.command("inspect", short_help="Show a wheel's stack, and compare its files.")
@click.argument("what", metavar="FILE|PACKAGE")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Interpreter with the installed package. Default: this one.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Also compare the installed files with those of this wheel.",
)
@click.option("--bytecode", is_flag=True, help="Also check Python's compiled files of the installed package (half a minute).")
@json_option
@click.pass_context
def inspect(
    context: click.Context, what: str, python: Path | None, against: Path | None, bytecode: bool, as_json: bool
) -> None:
    """Show the stack that a wheel belongs to, and compare its files with its RECORD.

    FILE ends in .whl; anything else is the name of an installed package. The exit code is 1 if a file is wrong.
    """

    if what.endswith(".whl"):
        if python is not None or against is not None or bytecode:
            raise click.UsageError("--python, --against and --bytecode apply to an installed package only")
        if not Path(what).is_file():
            raise StackError(f"{what} is missing", "check the path")
        report = inspection.wheel(Path(what))
    else:
        report = inspection.installed(what, python, against, bytecode=bytecode)
    if as_json:
        fields = ("name", "version", "files", "problems")
        shown = {name: getattr(report, name) for name in fields}
        print_json({"whole": not report.problems, **shown, "stack": report.described})
    else:
        _print(report)
    context.exit(1 if report.problems else 0)


def _print(report: Report) -> None:
    _say(f"{report.name} {report.version}")
    description = report.described
    if description is None:
        _say("it does not describe a stack: it was not made by `stack build wheels`")
    else:
        _say(f"stack   {description.get('digest')}")
        if description.get("lane") is not None:
            _say(f"lane    {description.get('lane')}")
        base = description.get("base", {})
        _say(f"made    by {description.get('mode')} from {base.get('file')} (SHA-256 {base.get('sha256')})")
        for name, pin in description.get("pins", {}).items():
            _say(f"pin     {name} {pin.get('tag') or ''} {pin.get('commit')}".replace("  ", " "))
        for file in description.get("files", []):
            blob = f"{file.get('mode')} {str(file.get('blob'))[:12]}" if file.get("blob") else "removed"
            _say(f"file    {file.get('upstream')}: {file.get('path')} ({blob})")
        for line in description.get("edited", []):
            _say(f"edited  {line}")
        for line in description.get("left_out", []):
            _say(f"not in  {line}: the published wheel does not contain it")
    for problem in report.problems:
        _say(f"WRONG   {problem}")
    if not report.problems:
        _say(f"whole: {counted(report.files, 'file is', 'files are')} as listed")


def _say(line: str) -> None:
    click.echo(one_line(line))


@command.command("diff", short_help="Show why two wheels are different bytes.")
@click.argument("first", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("second", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
@click.pass_context
def diff(context: click.Context, first: Path, second: Path, as_json: bool) -> None:
    """Show why two wheels are different bytes: files, their contents, or how they are packed.

    The exit code is 1 if they differ.
    """

    differences = comparison.compare(first, second)
    if as_json:
        shown = [{"kind": item.kind.value, "name": item.name, "lines": list(item.lines)} for item in differences]
        print_json({"same": not differences, "differences": shown})
    else:
        for difference in differences:
            _say(f"{difference.name}: {difference.kind.value}" if difference.name else difference.kind.value)
            for line in difference.lines:
                _say(f"    {line}")
        _say(f"{len(differences)} differences" if differences else "the same bytes")
    context.exit(1 if differences else 0)


@command.command("index", short_help="Write an index of wheels for `pip install`.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
def index(folder: Path, as_json: bool) -> None:
    """Write DIR/simple, an index of the wheels in DIR for `pip install --extra-index-url`, as static files.

    Any web server that serves DIR will do: HTML (PEP 503) and JSON (PEP 691), with hashes.
    """

    entries_by_project = simple.write(folder)
    if as_json:
        print_json({"projects": {name: [entry.filename for entry in entries] for name, entries in entries_by_project.items()}})
    else:
        click.echo(
            f"{folder / simple.FOLDER}: {', '.join(f'{name} ({len(entries)})' for name, entries in entries_by_project.items())}"
        )
