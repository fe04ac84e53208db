# SPDX-License-Identifier: Apache-2.0
"""The jobs of `stack export-pr`, one module each: its `run(work)` does the job, prints, and returns the exit code."""

import fnmatch
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.upstreaming import plan as planning  # `plan` is a module of this package
from stack.upstreaming.proposal import Plan, Proposal
from stack.upstreaming.splitting import By


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked for, as it stands on the command line.

    `only`: patterns of the names of pull requests. `split`: `PATCH[:by=file|hunk|definition]`. `push`: `[UPSTREAM=]REMOTE`.
    `despite`: addresses of pull requests that are no duplicates. `over`: commits in a fork that a push may replace.
    """

    series: tuple[str, ...]
    upstream: tuple[str, ...] = ()
    onto: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    tests: bool = True
    python: Path | None = None
    svg: Path | None = None
    output: Path | None = None
    push: tuple[str, ...] = ()
    despite: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    as_json: bool = False


class Work:
    """One call: what was asked, where trees come from, and the plan, which is made on its first use."""

    def __init__(self, context: click.Context, stores: Stores, asked: Asked) -> None:
        self.context = context
        self.stores = stores
        self.asked = asked

    @functools.cached_property
    def plans(self) -> tuple[Plan, ...]:
        """The plan of each upstream.

        Raises:
            StackError: what was asked cannot be planned.

        """

        asked = self.asked
        onto = _onto(asked.onto, self._planned())
        split = dict(_split(one) for one in asked.split)
        wanted = planning.Wanted(asked.series, asked.upstream, onto, split, tests=asked.tests, python=asked.python)
        return planning.plans(self.stores, wanted)

    @property
    def chosen(self) -> tuple[Proposal, ...]:
        """The pull requests that `--only` names, of all plans; all of them without it.

        Raises:
            StackError: it names none.

        """
        known = [one for plan in self.plans for one in plan.proposals]
        for pattern in self.asked.only:
            if not any(fnmatch.fnmatchcase(one.name, pattern) for one in known):
                names = ", ".join(one.name for one in known) or "none"
                raise StackError(f"--only {pattern} matches no pull request of the plan", f"planned: {names}")
        return tuple(
            one
            for one in known
            if not self.asked.only or any(fnmatch.fnmatchcase(one.name, pattern) for pattern in self.asked.only)
        )

    def _planned(self) -> list[str]:
        """The upstreams with a release of their own that pull requests may go to."""
        stack, asked = self.stores.stack, self.asked
        series = [stack.get(name) for name in asked.series] or stack.series
        names = asked.upstream or {ref.upstream for one in series for ref in one.patches}
        return [pin.upstream for pin in stack.pins if pin.within is None and pin.upstream in names]


def _onto(given: tuple[str, ...], planned: list[str]) -> dict[str, str]:
    """What `--onto` names, by upstream; the upstream may be left out where there is one.

    Raises:
        StackError: it may not, or one is named twice.

    """
    found: dict[str, str] = {}
    for one in given:
        name, _, revision = one.rpartition("=")
        if not name and len(planned) != 1:
            raise StackError(
                f"--onto {one} does not say of which upstream", f"write --onto UPSTREAM={one}, or name one with --upstream"
            )
        name = name or planned[0]
        if name in found:
            raise StackError(f"--onto names {name} twice: {found[name]} and {revision}", "name one of them")
        found[name] = revision
    return found


def _split(given: str) -> tuple[str, By]:
    """What `--split` names: the patch's path below `stacks/`, and how to cut it.

    Raises:
        StackError: there is no such way.

    """

    path, _, by = given.partition(":by=")
    if by not in ("", *By):
        raise StackError(f"--split {given}: a patch cannot be cut by {by!r}", f"by={', by='.join(By)}")
    return f"{path.removeprefix('stacks/').removesuffix('.patch')}.patch", By(by or By.FILE)


Run = Callable[[Work], int]
"""What a job's module has under the name `run`."""
