# SPDX-License-Identifier: Apache-2.0
"""Whether a published image is what it is said to be: digest, signatures, provenance, gates, labels against the pins."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from securesystemslib.signer import SSlibKey

from stack.base.errors import StackError
from stack.images import admission, attached, envelope, image, labels, layout, statement
from stack.images.image import Image
from stack.images.reference import Reference
from stack.images.statement import Statement
from stack.model import verdict
from stack.model.stack import Stack
from stack.model.verdict import Verdict
from stack.validation import gates


class State(StrEnum):
    """How a check ended; what was not asked for is not checked, and has not held."""

    HOLDS = "holds"
    FAILS = "fails"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it was of, how it ended, and a sentence."""

    name: str
    state: State
    said: str


@dataclass(frozen=True, slots=True)
class Claims:
    """What is attested of an image: `signed` where a key was given and all of it is by that key."""

    statements: tuple[Statement, ...]
    foreign: int
    """Attestations that the key has not signed; they count for nothing."""

    def of(self, kind: str) -> tuple[Statement, ...]:
        """The statements with one type of predicate."""
        return tuple(one for one in self.statements if one.kind == kind)

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that it is said to have passed."""
        return tuple(sorted({name for one in self.of(statement.SUMMARY) if (name := _gate(one.predicate))}))

    @property
    def names(self) -> tuple[str, ...]:
        """The references under which it is said to have been published."""
        said = [str(one.predicate.get("resourceUri", "")) for one in self.of(statement.SUMMARY)]
        return tuple(sorted({name.removeprefix("docker://") for name in said}))

    @property
    def time(self) -> str:
        """When it was published first; empty where nothing says so."""
        return min((str(one.predicate.get("timeVerified", "")) for one in self.of(statement.SUMMARY)), default="")


@dataclass(frozen=True, slots=True)
class Report:
    """What was found of an image."""

    image: Image
    claims: Claims
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether all was checked and all holds."""
        return all(one.state is State.HOLDS for one in self.checks)

    @property
    def problems(self) -> tuple[str, ...]:
        """What does not hold, a sentence each."""
        return tuple(f"{one.name}: {one.said}" for one in self.checks if one.state is not State.HOLDS)


def claims(found: Image, key: SSlibKey | None, *, tls: bool = True) -> Claims:
    """What is attested of an image; with a key, only what it has signed.

    Raises:
        StackError: it cannot be read.

    """
    envelopes = attached.fetch(found, tls=tls)
    ours = [one for one in envelopes if key is None or envelope.signed_by(one, key)]
    return Claims(tuple(statement.read(envelope.payload(one)) for one in ours), len(envelopes) - len(ours))


def verify(
    where: Reference,
    stack: Stack,
    key: SSlibKey | None,
    gate: str | None = None,
    *,
    tls: bool = True,
    gates_file: Path | None = None,
) -> Report:
    """Verify an image, in a registry or in a layout, against the stack at hand.

    `gate` names the one that it has to have passed; without it, whatever it is said to have passed is judged, one at least.
    `gates_file` has the gates as they are now: those of the stack at hand unless named.

    Raises:
        StackError: the image cannot be read.

    """
    report = published(where, key, gate, tls=tls)
    if not report.claims.statements:
        return report
    return Report(
        report.image, report.claims, (*report.checks, *_against(report.image, report.claims, stack, gate, gates_file))
    )


def published(where: Reference, key: SSlibKey | None, gate: str | None = None, *, tls: bool = True) -> Report:
    """Whether an image, of whatever stack, was published: signed, with its provenance, and having passed its gates then.

    Raises:
        StackError: the image cannot be read.

    """
    found = image.read(where, tls=tls)
    said = claims(found, key, tls=tls)
    if not said.statements and not said.foreign:
        return Report(found, said, (Check("attestations", State.FAILS, "there are none"),))
    return Report(found, said, tuple(_checks(found, said, key, gate)))


def _checks(found: Image, said: Claims, key: SSlibKey | None, gate: str | None) -> Iterator[Check]:
    yield Check("digest", State.HOLDS, found.digest)
    yield _signature(said, key)
    yield _check("subject", [f"one is of {' and '.join(one.subjects)}" for one in _moved(found, said)], "all are of this image")
    yield _check("provenance", [*_provenance(found, said)], f"of stack {_stack(found)}")
    if not (said.gates if gate is None else (gate,)):
        yield Check("gate", State.FAILS, "it has passed none")
    for name in said.gates if gate is None else (gate,):
        yield _check(f"gate {name}", [*_passed(found, said, name)], "passed")


def _against(found: Image, said: Claims, stack: Stack, gate: str | None, gates_file: Path | None) -> Iterator[Check]:
    """What is said, against the pins and the gates of the stack at hand."""
    pinned = statement.dependencies(stack)
    built = [_inner(one.predicate, "buildDefinition", "resolvedDependencies") for one in said.of(statement.PROVENANCE)]
    other = ["its provenance names other pins than this stack's"] if any(one != pinned for one in built) else []
    yield _check("pins", [*admission.unlike(found, stack), *other], "labels and provenance name the pins at hand")
    now = gates_file or stack.root / gates.FILE
    for name in said.gates if gate is None else (gate,):
        yield _check(
            f"gate {name} now",
            [*_judged(found, said, stack, name, now)],
            "passed by the attested verdicts, judged again",
        )


def _check(name: str, problems: Sequence[str], good: str) -> Check:
    return Check(name, State.FAILS if problems else State.HOLDS, "; ".join(problems) or good)


def _signature(said: Claims, key: SSlibKey | None) -> Check:
    if key is None:
        return Check("signature", State.UNCHECKED, "no key was named: anyone may have said all this")
    if not said.statements:
        return Check("signature", State.FAILS, f"none of {said.foreign} attestations is signed with this key")
    others = f", {said.foreign} by others count for nothing" if said.foreign else ""
    return Check("signature", State.HOLDS, f"{len(said.statements)} attestations are signed with this key{others}")


def _moved(found: Image, said: Claims) -> Iterator[Statement]:
    """Statements on other images: somebody has moved them here."""
    for one in said.statements:
        if found.digest not in one.subjects:
            yield one


def _provenance(found: Image, said: Claims) -> Iterator[str]:
    given = said.of(statement.PROVENANCE)
    if not given:
        yield "there is none"
    for one in given:
        kind = _inner(one.predicate, "buildDefinition", "buildType")
        if kind != statement.BUILD:
            yield f"it is of another kind of build ({kind!r:.80})"
        elif _inner(one.predicate, "buildDefinition", "externalParameters", "stack") != _stack(found):
            yield "it is of another stack than the image's label"


def _passed(found: Image, said: Claims, name: str) -> Iterator[str]:
    """Why a gate was not passed then: by what the summaries say of it, and by the verdicts that they name."""
    summaries = [one.predicate for one in said.of(statement.SUMMARY) if _gate(one.predicate) == name]
    if not summaries:
        yield "nothing says that it was passed"
    platforms = {one.digest for one in found.platforms}
    for one in summaries:
        if one.get("verificationResult") != "PASSED":
            yield "its summary says that it was not passed"
        if one.get("stack_digest") != _stack(found):
            yield "its summary is of another stack than the image's label"
        if not one.get("inputAttestations"):
            yield "its summary names no verdict"
        for digest in _named(one):
            try:
                given = _verdict(said, digest)
            except StackError as refused:
                yield str(refused)
                continue
            if given.stack != _stack(found) or given.image not in platforms:
                yield f"the verdict {digest} is of the stack {given.stack} and the image {given.image}"
            if given.gates.get(name) != _inner(one, "policy", "digest", "sha256"):
                yield f"the verdict {digest} was made under another gate"


def _judged(found: Image, said: Claims, stack: Stack, name: str, gates_file: Path) -> Iterator[str]:
    """Why the attested verdicts do not pass a gate as it is now."""
    summaries = [one.predicate for one in said.of(statement.SUMMARY) if _gate(one.predicate) == name]
    gate = gates.load(gates_file, name)
    if any(_inner(one, "policy", "digest", "sha256") != gates.digest(gate) for one in summaries):
        yield "it was another gate then than it is now"
    named = dict.fromkeys(digest for one in summaries for digest in _named(one))
    with tempfile.TemporaryDirectory(prefix="stack-verdicts-") as folder:
        files = []
        for digest in named:
            try:
                data = verdict.write(_verdict(said, digest))
            except StackError as refused:
                yield str(refused)
                continue
            files.append(Path(folder) / f"{digest[:12]}.json")
            files[-1].write_bytes(data)
        for problem in admission.verdict_problems(found, gates.released(stack), gate, files, None):
            yield problem.replace(f"{folder}/", "attested verdict ")


def _named(summary: Mapping[str, Any]) -> list[str]:
    """The digests of the verdicts that a summary names."""
    return [str(_inner(one, "digest", "sha256")) for one in summary.get("inputAttestations") or []]


def _verdict(said: Claims, digest: str) -> Verdict:
    """The attested verdict with that digest, which is computed anew.

    Raises:
        StackError: there is none, or it is not as it was written.

    """
    for one in said.of(statement.VERDICT):
        if one.predicate.get("digest") == digest:
            return verdict.read(layout.encode(one.predicate), f"the attested verdict {digest[:12]}")
    raise StackError(f"the verdict {digest}, which its summary names, is not there")


def _stack(found: Image) -> str | None:
    """The stack that an image's labels name; None where its platforms do not agree."""
    said = {one.labels.get(labels.STACK) for one in found.platforms}
    return said.pop() if len(said) == 1 else None


def _gate(predicate: Any) -> str | None:
    uri = str(_inner(predicate, "policy", "uri"))
    return uri.removeprefix(statement.GATE) if uri.startswith(statement.GATE) else None


def _inner(value: Any, *keys: str) -> Any:
    """What lies at a path of keys, or None: predicates may lack anything."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def demand(report: Report) -> None:
    """Refuse what does not hold.

    Raises:
        StackError: names the first problem.

    """
    if not report.holds:
        raise StackError(
            f"{report.image.reference.shown} is not what was published ({report.problems[0]})", "stack image verify"
        )
