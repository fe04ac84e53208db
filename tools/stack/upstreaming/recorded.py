# SPDX-License-Identifier: Apache-2.0
"""Read the pull requests that `series.toml` records: the patches that each takes upstream, and the upstream that it goes to."""

import re
from collections.abc import Sequence

from stack.base.errors import StackError
from stack.forge import repositories
from stack.forge.repositories import Repository
from stack.model.series import PatchRef, Series, State
from stack.model.stack import Stack

_ADDRESS = re.compile(r"https?://(?P<host>[\w.:-]+)/(?P<owner>[\w.-]+)/(?P<name>[\w.-]+)/pull/(?P<number>\d{1,12})(?:[/?#].*)?")


def pulls(series: Series) -> dict[str, tuple[PatchRef, ...]]:
    """Return the addresses of a series' pull requests, each with the patches that it takes upstream."""
    refs_by_address: dict[str, list[PatchRef]] = {}
    for pulled in series.pulls:
        refs_by_address.setdefault(pulled.address, []).append(pulled.ref)
    if series.pull is not None:
        own = {pulled.ref for pulled in series.pulls}
        refs_by_address.setdefault(series.pull, []).extend(ref for ref in series.patches if ref not in own)
    return {address: tuple(refs) for address, refs in refs_by_address.items()}


def place(address: str) -> tuple[Repository, int] | None:
    """Parse a pull request's address into its repository and number; None if it is not such an address."""
    match = _ADDRESS.fullmatch(address)
    return (Repository(match["host"].lower(), match["owner"], match["name"]), int(match["number"])) if match else None


def upstream(stack: Stack, address: str, refs: Sequence[PatchRef]) -> str | None:
    """Return the upstream that an address belongs to.

    If several upstreams share a repository, an upstream of one of the patches is preferred.
    """
    located = place(address)
    if located is None:
        return None
    names = [name for name in stack.pins.names() if _same(_repository(stack, name), located[0])]
    return next((name for name in names if name in {ref.upstream for ref in refs}), names[0] if names else None)


def submitted(stack: Stack, to: str) -> frozenset[str]:
    """Return the addresses of our pull requests to an upstream whose series are submitted, which are taken to be open."""
    pending = [series for series in stack.series if series.state is State.SUBMITTED]
    return frozenset(
        address for series in pending for address, refs in pulls(series).items() if upstream(stack, address, refs) == to
    )


def _repository(stack: Stack, name: str) -> Repository | None:
    try:
        return repositories.repository(stack.pins.get(name).git)
    except StackError:
        return None


def _same(repository: Repository | None, other: Repository) -> bool:
    return repository is not None and (repository.host, repository.shown.lower()) == (other.host, other.shown.lower())
