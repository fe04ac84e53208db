# SPDX-License-Identifier: Apache-2.0
"""`stack wheel`: what a wheel or an installed package is made of, why two wheels differ, and an index of a folder of them."""

from pathlib import Path

import click

from stack.base.errors import StackError
from stack.cli.common import interpreter, json_option, one_line, print_json
from stack.wheels import comparison, inspection, simple
from stack.wheels.inspection import Report


@click.group("wheel")
def command() -> None:
    """Look into wheels, and publish a folder of them."""


@command.command("inspect")
@click.argument("what", metavar="FILE|PACKAGE")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Whose installed packages; those of this interpreter unless given.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Compare the installed files with those of this wheel, too.",
)
@click.option(
    "--bytecode", is_flag=True, help="Look into what Python has compiled of the installed files, too (half a minute)."
)
@json_option
@click.pass_context
def inspect(
    context: click.Context, what: str, python: Path | None, against: Path | None, bytecode: bool, as_json: bool
) -> None:
    """Show of which stack a wheel is, and compare its files with what it lists.

    FILE ends in .whl; anything else is the name of an installed package. Exit code 1 when a file is not what it should be.
    """

    if what.endswith(".whl"):
        if python is not None or against is not None or bytecode:
            raise click.UsageError("--python, --against and --bytecode go with an installed package")
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
    said = report.described
    if said is None:
        _say("it does not say of which stack it is: `stack build wheels` did not make it")
    else:
        _say(f"stack   {said.get('digest')}")
        base = said.get("base", {})
        _say(f"made    by {said.get('mode')} from {base.get('file')} (SHA-256 {base.get('sha256')})")
        for name, pin in said.get("pins", {}).items():
            _say(f"pin     {name} {pin.get('tag') or ''} {pin.get('commit')}".replace("  ", " "))
        for file in said.get("files", []):
            blob = f"{file.get('mode')} {str(file.get('blob'))[:12]}" if file.get("blob") else "removed"
            _say(f"file    {file.get('upstream')}: {file.get('path')} ({blob})")
        for line in said.get("edited", []):
            _say(f"edited  {line}")
        for line in said.get("left_out", []):
            _say(f"not in  {line}: the published wheel does not carry it")
    for problem in report.problems:
        _say(f"WRONG   {problem}")
    if not report.problems:
        _say(f"whole: {report.files} files are what they should be")


def _say(line: str) -> None:
    click.echo(one_line(line))


@command.command("diff")
@click.argument("first", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("second", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
@click.pass_context
def diff(context: click.Context, first: Path, second: Path, as_json: bool) -> None:
    """Show why two wheels are not the same bytes: files, their contents, or how they are packed.

    Exit code 1 when they differ.
    """

    found = comparison.compare(first, second)
    if as_json:
        shown = [{"kind": one.kind.value, "name": one.name, "lines": list(one.lines)} for one in found]
        print_json({"same": not found, "differences": shown})
    else:
        for one in found:
            _say(f"{one.name}: {one.kind.value}" if one.name else one.kind.value)
            for line in one.lines:
                _say(f"    {line}")
        _say(f"{len(found)} differences" if found else "the same bytes")
    context.exit(1 if found else 0)


@command.command("index")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
def index(folder: Path, as_json: bool) -> None:
    """Write DIR/simple, an index of the wheels in DIR for `pip install --extra-index-url`, as static files.

    Any web server that serves DIR will do: HTML (PEP 503) and JSON (PEP 691), with hashes.
    """

    found = simple.write(folder)
    if as_json:
        print_json({"projects": {name: [entry.filename for entry in entries] for name, entries in found.items()}})
    else:
        click.echo(f"{folder / simple.FOLDER}: {', '.join(f'{name} ({len(entries)})' for name, entries in found.items())}")
