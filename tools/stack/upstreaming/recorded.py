# SPDX-License-Identifier: Apache-2.0
"""The pull requests that series.toml knows: which patches each takes upstream, and to which upstream it goes."""

import re
from collections.abc import Sequence

from stack.base.errors import StackError
from stack.model.series import PatchRef, Series, State
from stack.model.stack import Stack
from stack.upstreaming import forge
from stack.upstreaming.forge import Repository

_ADDRESS = re.compile(r"https?://(?P<host>[\w.:-]+)/(?P<owner>[\w.-]+)/(?P<name>[\w.-]+)/pull/(?P<number>\d{1,12})(?:[/?#].*)?")


def pulls(series: Series) -> dict[str, tuple[PatchRef, ...]]:
    """The addresses of a series, with the patches that each takes upstream."""
    found: dict[str, list[PatchRef]] = {}
    for one in series.pulls:
        found.setdefault(one.address, []).append(one.ref)
    if series.pull is not None:
        own = {one.ref for one in series.pulls}
        found.setdefault(series.pull, []).extend(ref for ref in series.patches if ref not in own)
    return {address: tuple(refs) for address, refs in found.items()}


def place(address: str) -> tuple[Repository, int] | None:
    """The repository and the number of a pull request; None where the address is none's."""
    found = _ADDRESS.fullmatch(address)
    return (Repository(found["host"].lower(), found["owner"], found["name"]), int(found["number"])) if found else None


def upstream(stack: Stack, address: str, refs: Sequence[PatchRef]) -> str | None:
    """The upstream to whose repository an address belongs: one of those of the patches, where several have the same."""
    there = place(address)
    if there is None:
        return None
    names = [name for name in stack.pins.names() if _same(_repository(stack, name), there[0])]
    return next((name for name in names if name in {ref.upstream for ref in refs}), names[0] if names else None)


def submitted(stack: Stack, to: str) -> frozenset[str]:
    """The addresses of our pull requests to an upstream that belong to submitted series: as far as is known they are open."""
    lives = [one for one in stack.series if one.state is State.SUBMITTED]
    return frozenset(address for one in lives for address, refs in pulls(one).items() if upstream(stack, address, refs) == to)


def _repository(stack: Stack, name: str) -> Repository | None:
    try:
        return forge.repository(stack.pins.get(name).git)
    except StackError:
        return None


def _same(one: Repository | None, other: Repository) -> bool:
    return one is not None and (one.host, one.shown.lower()) == (other.host, other.shown.lower())
