# SPDX-License-Identifier: Apache-2.0
"""`stack rebase --all-lanes`: move every lane to its own release in one step, or show all of them on one release."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from stack.base.errors import StackError
from stack.carry.rebase import Conclusion, Rebase, Request, conclude_together, rebase
from stack.carry.upstream_stores import Stores
from stack.cli import documents
from stack.cli import rebase as one
from stack.cli.common import Options, print_json, print_legs, through_names
from stack.cli.lane_options import every
from stack.cli.rendering.guards import print_guards
from stack.cli.sentences import say
from stack.model import lanes

_ALONE = ("workspace", "go_on", "skip", "abort", "prove", "report")
_FINE = (Conclusion.SWITCHED, Conclusion.UNCHANGED, Conclusion.DRY_RUN)


def run(context: click.Context, options: Options) -> int:
    """Rebase every lane as the parameters of the command say; print the outcomes and return the exit code.

    Raises:
        StackError: A lane has no target, or a target names no lane; or as in a rebase.
        click.UsageError: The options do not go together.

    """
    asked = context.params
    if any(asked[name] for name in _ALONE):
        raise click.UsageError("--all-lanes works without a working tree, --prove and --report: name one lane with --lane")
    if asked["upstream"] is None or not asked["onto"]:
        raise click.UsageError("name an upstream and --onto REV")
    in_lanes = every(options)
    names = [str(each.lane) for each in in_lanes]
    targets = _targets(asked["onto"], names, dry_run=asked["dry_run"])
    with contextlib.ExitStack() as opened:
        place = opened.enter_context(options.place(asked["source"]))
        works: list[Rebase] = []
        stores_of: list[Stores] = []
        for each in in_lanes:
            stores = opened.enter_context(Stores(each.load(writes=not asked["dry_run"]), place))
            tag = stores.resolve(asked["upstream"], targets[str(each.lane)])
            request = Request(asked["upstream"], tag, asked["with_required"], through_names(asked["through"]))
            works.append(rebase(stores, request))
            stores_of.append(stores)
        allowed = {"allow_mismatch": asked["allow_mismatch"], "allow_drift": asked["allow_drift"]}
        ended = conclude_together(works, **allowed, dry_run=asked["dry_run"])
        steps = {work.stack.lane: _next(work, asked, ended) for work in works}
        if asked["as_json"]:
            pairs = zip(works, ended, strict=True)
            printed = [documents.document(one.as_document(work, how) | {"stopped": None}) for work, how in pairs]
            print_json({"lanes": printed}, documents.of_lanes())
        else:
            for work, how, stores in zip(works, ended, stores_of, strict=True):
                click.echo(f"== {lanes.named(work.stack.lane)} ==")
                if asked["form"] == "range-diff":
                    one.print_range_diff(stores, work)
                else:
                    print_legs(work)
                _print_end(work, how, steps[work.stack.lane])
                click.echo()
    return 0 if all(how in _FINE for how in ended) else 1


def _next(work: Rebase, asked: Mapping[str, Any], ended: Sequence[Conclusion]) -> tuple[str, str]:
    """Return what to print of a lane that would carry, and the next command, if there is one."""
    if not asked["dry_run"]:
        return "all would carry; nothing was changed, since another lane needs a person", ""
    if "=" not in asked["onto"][0]:
        flags = "".join(f" --{name.replace('_', '-')}" for name in ("allow_mismatch", "allow_drift") if asked[name])
        source = f" --source {asked['source']}" if asked["source"] is not None else ""
        return "dry run: nothing was written; to move only this lane:", f"{one.again(work)}{flags}{source}"
    fine = all(how in _FINE for how in ended)
    return f"dry run: nothing was written{'; next: the same without --dry-run' if fine else ''}", ""


def _print_end(work: Rebase, how: Conclusion, step: tuple[str, str]) -> None:
    if how is Conclusion.DRY_RUN:
        one.print_unmet(work)
        print_guards(work.guards, lanes.option(work.stack))
        say(*step)
    else:
        one.print_end(work, how, None, Path() if work.open else None)


def _targets(onto: Sequence[str], names: Sequence[str], *, dry_run: bool) -> dict[str, str]:
    """Return the revision for each lane.

    Raises:
        StackError: A lane has none or two, or one names no lane; or all lanes would come to stand on one release.

    """
    if len(onto) == 1 and "=" not in onto[0]:
        if not dry_run:
            each = " ".join(f"--onto {name}=REV" for name in names)
            raise StackError(
                f"--onto {onto[0]} would put every lane on one release", f"name one for each: {each}; or --dry-run"
            )
        return dict.fromkeys(names, onto[0])
    targets: dict[str, str] = {}
    for given in onto:
        name, named, revision = given.partition("=")
        if not named or name not in names:
            raise StackError(f"--onto {given} names no lane", f"write --onto LANE=REV; the lanes are {', '.join(names)}")
        if name in targets:
            raise StackError(f"--onto names lane {name} twice", "name it once")
        targets[name] = revision
    lacking = [name for name in names if name not in targets]
    if lacking:
        raise StackError(f"no --onto for lane {lacking[0]}", f"add --onto {lacking[0]}=REV, or rebase single lanes with --lane")
    return targets
