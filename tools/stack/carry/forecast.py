# SPDX-License-Identifier: Apache-2.0
"""Forecast the patches' outcomes on an unreleased upstream: plan a rebase without writing it."""

from dataclasses import dataclass

from stack.base.errors import StackError
from stack.carry.rebase import Rebase, Request, rebase
from stack.carry.upstream_stores import Stores

NIGHTLY = "nightly"
"""The newest state of an upstream: the remote's default branch, or the newest archive, pre-releases included."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A planned rebase of one upstream at one moment. `revision` is what `against` meant then."""

    upstream: str
    against: str
    revision: str
    work: Rebase

    @property
    def breaks(self) -> bool:
        """Return whether a patch or a guard would need a person."""
        return bool(self.work.open or self.work.broken_guards)


def forecast(stores: Stores, upstream: str | None, against: str, *, through: tuple[str, ...] = ()) -> tuple[Forecast, ...]:
    """Carry the patches of an upstream, or of every released one, onto a moving target; nothing is written to the stack.

    Raises:
        StackError: no such upstream or revision, or its sources cannot be obtained.

    """
    names = [upstream] if upstream is not None else [pin.upstream for pin in stores.stack.pins if pin.within is None]
    if upstream is None and against != NIGHTLY and len(names) > 1:
        raise StackError(f"{against} is a revision of one upstream", f"name it: {', '.join(names)}")
    forecasts = []
    for name in names:
        revision = stores.newest(name) if against == NIGHTLY else stores.resolve(name, against)
        forecasts.append(Forecast(name, against, revision, rebase(stores, Request(name, revision, through=through))))
    return tuple(forecasts)
