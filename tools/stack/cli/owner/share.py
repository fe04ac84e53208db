# SPDX-License-Identifier: Apache-2.0
"""`spark-stack share`: show a verdict reduced to what others need, and prepare an issue or a pull request with it."""

import shlex
import sys
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.cli.common import Options, json_option, one_line, print_json
from stack.cli.rendering import terminal, text
from stack.cli.sentences import say
from stack.model import verdict as verdicts
from stack.model.verdict import Verdict
from stack.owner import kept_verdicts, state
from stack.owner.sharing import issue, prepared, reduced
from stack.owner.sharing.issue import Issue, Repository
from stack.owner.sharing.prepared import Prepared


@click.command("share")
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--repository",
    metavar="OWNER/NAME",
    help="Where to open the issue. Default: the remote `origin` of the stack in this folder.",
)
@click.option(
    "--pull-request",
    is_flag=True,
    help="Write the file to validation/verdicts of the stack in this folder, for a pull request, instead of preparing an issue.",
)
@click.option(
    "--sign", "key", type=click.Path(path_type=Path, exists=True), help="Sign the file with this OpenSSH key: FILE.sig."
)
@click.option("--open", "opens", is_flag=True, help="Open the filled form in the browser.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    file: Path | None,
    repository: str | None,
    pull_request: bool,
    key: Path | None,
    opens: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Share a verdict of `spark-stack check`: FILE, or the newest one.

    It is reduced to hardware, versions, digests, cases and speeds, and shown whole. With your yes, the reduced file is written, and the
    address of a prefilled issue is printed, or the commands of a pull request. Nothing is sent from here. Exit code 1 if you said no.
    """

    options: Options = context.obj
    kept = kept_verdicts.folder(state.path())
    source = file or kept_verdicts.newest(kept)
    less = reduced.of(verdicts.load(source))
    root = options.root_if_any()
    if pull_request and root is None:
        raise StackError("there is no stack in this folder", "run this in a clone of the stack's repository")
    where = None if pull_request else _repository(repository, root)
    if not as_json:
        _show(source, less)
    if not _agreed(yes=yes, as_json=as_json):
        say("Nothing was written.")
        context.exit(1)
    made = prepared.for_pull_request(root, less, key) if pull_request and root is not None else prepared.beside(kept, less, key)
    prefilled = issue.of(less, where) if where is not None else None
    if as_json:
        print_json(_as_json(less, made, prefilled))
    elif prefilled is not None:
        _print_issue(prefilled, made)
    else:
        _print_pull_request(less, made)
    if opens and prefilled is not None:
        click.launch(prefilled.address)


def _repository(given: str | None, root: Path | None) -> Repository:
    """Return the repository: the named one, or that of the stack's remote.

    Raises:
        StackError: there is none.

    """
    if given is not None:
        return issue.repository(given)
    found = issue.origin(root) if root is not None else None
    if found is None:
        raise StackError("no repository is named", "name the one that should get it with --repository OWNER/NAME")
    return found


def _show(source: Path, less: Verdict) -> None:
    say(f"Of {one_line(str(source))} this is shared, and nothing else:")
    text.echo(verdicts.write(less).decode())


def _agreed(*, yes: bool, as_json: bool) -> bool:
    """Ask whether to go on.

    Raises:
        StackError: nobody can be asked.

    """
    if yes:
        return True
    if as_json or not terminal.is_terminal() or not sys.stdin.isatty():
        raise StackError("nobody can be asked here whether to share it", "read what it prints, then run it again with --yes")
    return click.confirm("Share this?", default=False)


def _print_issue(prefilled: Issue, made: Prepared) -> None:
    say(f"written: {one_line(str(made.file))}")
    if made.signature is not None:
        say(f"signed: {one_line(str(made.signature))}")
    if not prefilled.whole or made.signature is not None:
        say(
            "Attach what was written to the issue: the form has only a summary."
            if not prefilled.whole
            else "Attach the signature to the issue."
        )
    say("This address opens the filled form; nothing is sent before you submit it:")
    text.echo(prefilled.address)


def _print_pull_request(less: Verdict, made: Prepared) -> None:
    files = [made.file, *([made.signature] if made.signature is not None else [])]
    branch = f"verdict-{less.stack[:8]}-{less.made[:10]}"
    for each in files:
        say(f"written: {one_line(str(each))}")
    say("Make a pull request of it:")
    text.echo(f"  git switch -c {branch}")
    text.echo(f"  git add {' '.join(shlex.quote(str(each)) for each in files)}")
    text.echo(f"  git commit -m {shlex.quote(f'verdicts: add {made.file.stem}')}")
    text.echo("  git push -u YOUR-FORK HEAD")


def _as_json(less: Verdict, made: Prepared, prefilled: Issue | None) -> dict[str, object]:
    return {
        "verdict": verdicts.as_json(less),
        "file": str(made.file),
        "signature": str(made.signature) if made.signature is not None else None,
        "issue": {"title": prefilled.title, "address": prefilled.address, "whole": prefilled.whole}
        if prefilled is not None
        else None,
    }
