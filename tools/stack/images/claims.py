# SPDX-License-Identifier: Apache-2.0
"""What the attestations of an image claim, by statements that a trusted key or identity has signed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stack.images import attestations, bundle, statement, trust
from stack.images.image import Image
from stack.images.statement import Statement
from stack.images.trust import Trusted


@dataclass(frozen=True, slots=True)
class Claims:
    """The attestations of an image; with a key or an identity, `statements` are only those that it has signed."""

    statements: tuple[Statement, ...]
    foreign: int
    """Number of attestations that somebody else has signed, which are ignored."""
    bundled: int = 0
    """Number of statements that are in a Sigstore bundle."""
    earlier: int = 0
    """Number of statements in cosign's earlier form."""
    unbundled: int = 0
    """Number of statements that could be in a bundle and are not; some are too large."""
    refused: tuple[str, ...] = ()
    """Sentences on bundles that contradict the signed statements inside."""

    def of(self, kind: str) -> tuple[Statement, ...]:
        """Return the statements with one type of predicate."""
        return tuple(item for item in self.statements if item.kind == kind)

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that a summary claims were passed."""
        return tuple(sorted({name for item in self.of(statement.SUMMARY) if (name := gate_of(item.predicate))}))

    @property
    def names(self) -> tuple[str, ...]:
        """The references that a summary claims it was published as."""
        uris = [str(one.predicate.get("resourceUri", "")) for one in self.of(statement.SUMMARY)]
        return tuple(sorted({uri.removeprefix("docker://") for uri in uris}))

    @property
    def time(self) -> str:
        """The time of its first publication, empty without a summary."""
        return min((str(item.predicate.get("timeVerified", "")) for item in self.of(statement.SUMMARY)), default="")


def claims(found: Image, trusted: Trusted | None, *, tls: bool = True) -> Claims:
    """Read the attestations of an image; with a key or an identity, only those that it has signed.

    Raises:
        StackError: they cannot be read.

    """
    ours: dict[bytes, Statement] = {}
    forms: dict[bool, set[bytes]] = {True: set(), False: set()}
    foreign: set[bytes] = set()
    refused: dict[str, None] = {}
    for item in attestations.fetch(found, tls=tls):
        payload = trust.payload(item, trusted)
        if payload is None:
            foreign.add(item.envelope)
            continue
        said = ours.setdefault(payload, statement.read(payload))
        forms[item.bundle is not None].add(payload)
        refused |= dict.fromkeys(trust.contradictions(item, said, found, trusted))
    unbundled = [one for one in ours if one not in forms[True] and len(one) <= bundle.LARGEST]
    return Claims(tuple(ours.values()), len(foreign), len(forms[True]), len(forms[False]), len(unbundled), tuple(refused))


def gate_of(predicate: Any) -> str | None:
    """Return the gate that a summary is about; None if it is about something else."""
    uri = str(inner(predicate, "policy", "uri"))
    return uri.removeprefix(statement.GATE) if uri.startswith(statement.GATE) else None


def inner(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys, or None: predicates may lack any key."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
