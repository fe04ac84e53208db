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
from stack.upstreaming.proposal import Proposal, UpstreamPlan
from stack.upstreaming.splitting import By


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The command line's values.

    `only` has patterns for names of pull requests, `split` has `PATCH[:by=file|hunk|definition]`, and `push` has
    `[UPSTREAM=]REMOTE`. `despite` has addresses of pull requests that are not duplicates, and `over` commits in a fork that a
    push may replace.
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
    preview: Path | None = None
    push: tuple[str, ...] = ()
    despite: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    as_json: bool = False


class Work:
    """One call: the command line's values, the stores, and the plan, which is made on its first use."""

    def __init__(self, context: click.Context, stores: Stores, options: ExportOptions) -> None:
        self.context = context
        self.stores = stores
        self.options = options

    @property
    def lane(self) -> str | None:
        """The lane whose patches are proposed, None for no lane."""
        return self.stores.stack.lane

    @functools.cached_property
    def plans(self) -> tuple[UpstreamPlan, ...]:
        """The plan of each upstream.

        Raises:
            StackError: the request cannot be planned.

        """

        options = self.options
        onto = _onto(options.onto, self._planned())
        split = dict(_split(given) for given in options.split)
        wanted = planning.Wanted(options.series, options.upstream, onto, split, tests=options.tests, python=options.python)
        return planning.plans(self.stores, wanted)

    @property
    def chosen(self) -> tuple[Proposal, ...]:
        """The pull requests of all plans that `--only` selects; all without it.

        Raises:
            StackError: a pattern matches no pull request.

        """
        known = [proposal for plan in self.plans for proposal in plan.proposals]
        for pattern in self.options.only:
            if not any(fnmatch.fnmatchcase(proposal.name, pattern) for proposal in known):
                names = ", ".join(proposal.name for proposal in known) or "none"
                raise StackError(f"--only {pattern} matches no pull request of the plan", f"planned: {names}")
        return tuple(
            proposal
            for proposal in known
            if not self.options.only or any(fnmatch.fnmatchcase(proposal.name, pattern) for pattern in self.options.only)
        )

    def _planned(self) -> list[str]:
        """Return the requested upstreams that are not vendored."""
        stack, options = self.stores.stack, self.options
        series = [stack.get(name) for name in options.series] or stack.series
        names = options.upstream or {ref.upstream for item in series for ref in item.patches}
        return [pin.upstream for pin in stack.pins if pin.within is None and pin.upstream in names]


def _onto(given: tuple[str, ...], planned: list[str]) -> dict[str, str]:
    """Parse the values of `--onto` into revisions by upstream; the upstream may be omitted if there is only one.

    Raises:
        StackError: the upstream is missing, or is named twice.

    """
    revisions: dict[str, str] = {}
    for value in given:
        name, _, revision = value.rpartition("=")
        if not name and len(planned) != 1:
            raise StackError(
                f"--onto {value} names no upstream", f"write --onto UPSTREAM={value}, or name one upstream with --upstream"
            )
        name = name or planned[0]
        if name in revisions:
            raise StackError(f"--onto names {name} twice: {revisions[name]} and {revision}", "name one of them")
        revisions[name] = revision
    return revisions


def _split(given: str) -> tuple[str, By]:
    """Parse a value of `--split` into the patch's path below `stacks/` and the way to cut it.

    Raises:
        StackError: the way of cutting is unknown.

    """

    path, _, by = given.partition(":by=")
    if by not in ("", *By):
        raise StackError(f"--split {given}: a patch cannot be cut by {by!r}", f"by={', by='.join(By)}")
    return f"{path.removeprefix('stacks/').removesuffix('.patch')}.patch", By(by or By.FILE)


Run = Callable[[Work], int]
"""The type of the function `run` in each job's module."""
