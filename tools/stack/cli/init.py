# SPDX-License-Identifier: Apache-2.0
"""`stack init`: begin a stack, or add an upstream to one."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from stack.carry import beginning, beginning_files
from stack.carry.beginning import Begun, Found, Wish
from stack.cli.common import Options, json_option, paused, print_json, reference_option
from stack.cli.pins import pin_json
from stack.cli.sentences import say, tell


@click.command("init")
@click.argument("upstream", required=False)
@click.option("--git", metavar="URL", help="Address of the upstream's git repository, or the path of a local one.")
@click.option("--tag", help="The release tag that your fork stands on. Default: the newest release.")
@click.option("--commit", metavar="REV", help="The commit that your fork stands on, or a branch, in place of a tag.")
@click.option("--package", metavar="NAME", help="Take sources from the source archives of this package of the registry.")
@click.option("--tags", metavar="PATTERN", help="What a release tag looks like: release-*, or a regular expression.")
@click.option("--within", metavar="UPSTREAM:PATH", help="The upstream is vendored at this path of another one.")
@reference_option
@json_option
@click.pass_obj
def command(
    options: Options,
    upstream: str | None,
    git: str | None,
    tag: str | None,
    commit: str | None,
    package: str | None,
    tags: str | None,
    within: str | None,
    reference: Path | None,
    as_json: bool,
) -> None:
    """Begin a stack in this folder, or add UPSTREAM to the stack that is here.

    Writes pins.toml, stacks/stack.toml and .gitignore. UPSTREAM is your name for the project, by default that of its repository. On a
    terminal it asks for what you left out. In a pipe it takes the newest release. It fetches the history of the upstream without file
    contents; git reads those later, when they are needed.
    """
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    if git is None and not asks:
        raise click.UsageError("name the upstream's repository: --git URL")
    here = Path.cwd()
    root = beginning_files.folder(options.root, here)
    address = git if git is not None else click.prompt("Address of the upstream's git repository")
    wanted = beginning.wish(upstream, address, here=here, tag=tag, commit=commit, package=package, tags=tags, within=within)
    beginning_files.existing(root, wanted.upstream)
    with options.place(kept=True) as place:
        found = beginning.find(wanted, place)
        wanted = _asked(wanted, found) if asks else _announced(wanted, found)
        begun = beginning.begin(root, wanted, found, place, reference=reference)
    if as_json:
        print_json(
            {
                "root": str(root),
                "added": begun.added,
                "pin": pin_json(begun.pin),
                "written": begun.written,
                "newest": begun.newest,
                "plugins": begun.plugins,
            }
        )
    else:
        _print(begun)


def _asked(wanted: Wish, found: Found) -> Wish:
    """Ask for the revision and the package that the user has not named."""
    with paused():
        if wanted.tag is None and wanted.commit is None and wanted.within is None:
            answer = click.prompt("Tag, branch or commit that your fork stands on", default=found.newest or "HEAD")
            wanted = replace(wanted, tag=answer) if answer in found.commits else replace(wanted, commit=answer)
        if wanted.package is None and wanted.tag is not None and wanted.within is None:
            package = beginning.package_of(wanted, found, wanted.tag)
            question = f"The registry has a source archive of {package} {wanted.tag}. Take sources from there instead of git?"
            if package is not None and click.confirm(question, default=False):
                wanted = replace(wanted, package=package)
    return wanted


def _announced(wanted: Wish, found: Found) -> Wish:
    """Take the newest release if no revision is named, and say so."""
    if wanted.tag is None and wanted.commit is None and wanted.within is None and found.newest is not None:
        tell(f"{found.newest} is the newest release (tags like {found.rule.pattern})")
        return replace(wanted, tag=found.newest)
    return wanted


def _print(begun: Begun) -> None:
    pin = begun.pin
    where = f"the source archive of {pin.archive.package} {pin.archive.version}" if pin.archive else "git"
    where = f"{pin.within.path} of {pin.within.upstream}" if pin.within else where
    say(f"{pin.upstream} is pinned to {pin.shown} ({pin.commit[:12]}), sources from {where}")
    say(f"wrote {', '.join(begun.written)}" + (" in " + str(begun.root) if begun.root != Path.cwd() else ""))
    if begun.plugins:
        say(f"stacks/stack.toml names the plug-in {', '.join(begun.plugins)}, which knows {pin.upstream}")
    if begun.added:
        say("`stack undo` takes it back")
    say("next, the commits of your fork as patches:", "stack import CLONE BRANCH")
    mover = pin.within.upstream if pin.within else pin.upstream
    onto = begun.newest if pin.within is None and begun.newest not in (None, pin.tag) else "REV"
    say("then:", f"stack rebase {mover} --onto {onto} --dry-run")
