# SPDX-License-Identifier: Apache-2.0
"""`stack cache`: show the cache's contents and free disk space."""

import time
from collections.abc import Sequence

import click

from stack.cli.common import Options, json_option, print_json, print_table, progress
from stack.cli.sentences import fact, say
from stack.store import cache, upkeep
from stack.store.upkeep import Entry

DAY = 24 * 3600
HOLDS = {
    "archives": "source archives of the registry",
    "compilers": "CUDA's compiler, disassembler and headers",
    "compiling": "what compile-check has listed and compiled",
    "emulated": "CUDA kernels built for CPUs, with the machine that runs them",
    "environments": "Python environments of proofs, builds and validations",
    "images": "base images for tests, requirements of images, and the wheels that they lock",
    "landing": "what upstream changed between two releases, indexed",
    "operators": "vLLM's operators for CPUs, out of its published wheel",
    "results": "results of proofs and of planted faults, by the hash of their inputs",
    "serving": "what a validated server runs: packages, models, references",
    "trees": "carried and upstream source trees as folders",
    "upstreams": "the stores: a git repository an upstream; they stay",
    "wheels": "published wheels, those built, and what builds left",
}


@click.group("cache")
def command() -> None:
    """Show what the cache holds, and remove what was not used for long.

    All of it can be downloaded or made again. The stores stay, since undo and open working trees need them.
    """


@command.command("show")
@json_option
@click.pass_obj
def show(options: Options, as_json: bool) -> None:
    """Show the size of each part of the cache, and when it was last used."""

    place = cache.root(options.cache)
    with progress() as tell:
        held = upkeep.entries(place, tell or (lambda *_: None))
    if as_json:
        print_json({"cache": str(place), "entries": [_as_json(entry) for entry in held]})
        return
    fact(f"{place}: {_size(held)}")
    print_table(("folder", "entries", "size", "last used", "holds"), list(_rows(held)))


@command.command("prune")
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    metavar="DAYS",
    help="Remove what was not used in this many days.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@json_option
@click.pass_context
def prune(context: click.Context, days: int, dry_run: bool, as_json: bool) -> None:
    """Remove what was not used for long; what is in use stays. Exit code 1: something cannot be removed."""

    options: Options = context.obj
    before = time.time() - days * DAY
    with progress() as tell:
        held = upkeep.entries(cache.root(options.cache), tell or (lambda *_: None))
    stuck: list[OSError] = []
    gone = (
        tuple(entry for entry in held if upkeep.removable(entry, before))
        if dry_run
        else upkeep.prune(held, before, stuck.append)
    )
    if as_json:
        failures = [{"path": str(error.filename), "why": error.strerror} for error in stuck]
        print_json({"dry_run": dry_run, "removed": [_as_json(entry) for entry in gone], "stuck": failures})
    else:
        if gone:
            print_table(("folder", "entries", "size", "last used", "holds"), list(_rows(gone)))
        for error in stuck:
            say(f"{error.filename} cannot be removed ({error.strerror}): look at its rights, or remove it yourself")
        would = "would be " if dry_run else ""
        say(f"{_size(gone)} {would}removed, {_size(held, gone)} {'would ' if dry_run else ''}stay")
    context.exit(1 if stuck else 0)


def _rows(held: Sequence[Entry]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for kind in sorted({entry.kind for entry in held}):
        those = [entry for entry in held if entry.kind == kind]
        used = time.strftime("%Y-%m-%d", time.localtime(max(entry.used for entry in those)))
        rows.append((kind, str(len(those)), _size(those), used, HOLDS.get(kind, "")))
    return rows


def _size(held: Sequence[Entry], less: Sequence[Entry] = ()) -> str:
    size = sum(entry.size for entry in held) - sum(entry.size for entry in less)
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _as_json(entry: Entry) -> dict[str, object]:
    return {"path": str(entry.path), "kind": entry.kind, "size": entry.size, "used": int(entry.used)}
