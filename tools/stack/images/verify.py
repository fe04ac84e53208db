# SPDX-License-Identifier: Apache-2.0
"""Verify a published image: digest, signatures, provenance, gates, and labels against the pins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import admission, image, labels, layout, statement, trust
from stack.images.claims import Claims, claims, gate_of, inner
from stack.images.image import Image
from stack.images.reference import Reference
from stack.images.statement import Statement
from stack.images.trust import Trusted
from stack.model import verdict
from stack.model.stack import Stack
from stack.model.verdict import VerdictFile
from stack.validation import gates


class CheckState(StrEnum):
    """The result of a check; a check that was not requested is unchecked, and does not hold."""

    HOLDS = "holds"
    FAILS = "fails"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its result, and a sentence."""

    name: str
    state: CheckState
    said: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of verifying an image."""

    image: Image
    claims: Claims
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Return whether everything was checked and holds."""
        return all(check.state is CheckState.HOLDS for check in self.checks)

    @property
    def problems(self) -> tuple[str, ...]:
        """The failed or skipped checks, a sentence for each."""
        return tuple(f"{check.name}: {check.said}" for check in self.checks if check.state is not CheckState.HOLDS)


def verify(
    where: Reference,
    stack: Stack,
    trusted: Trusted | None,
    gate: str | None = None,
    *,
    tls: bool = True,
    gates_file: Path | None = None,
) -> Report:
    """Verify an image, in a registry or a layout, against the stack at hand.

    `gate` names the gate that it has to have passed. Without it, all gates that it claims are checked, and there has to be one.
    `gates_file` has the current gates, by default those of the stack at hand.

    Raises:
        StackError: the image cannot be read.

    """
    report = published(where, trusted, gate, tls=tls)
    if not report.claims.statements:
        return report
    return Report(
        report.image, report.claims, (*report.checks, *_against(report.image, report.claims, stack, gate, gates_file))
    )


def published(where: Reference, trusted: Trusted | None, gate: str | None = None, *, tls: bool = True) -> Report:
    """Verify that an image of any stack was published: signed, with provenance, and with its gates passed at that time.

    Raises:
        StackError: the image cannot be read.

    """
    checked = image.read(where, tls=tls)
    attested = claims(checked, trusted, tls=tls)
    if not attested.statements and not attested.foreign:
        return Report(checked, attested, (Check("attestations", CheckState.FAILS, "there are none"),))
    return Report(checked, attested, tuple(_checks(checked, attested, trusted, gate)))


def _checks(checked: Image, attested: Claims, trusted: Trusted | None, gate: str | None) -> Iterator[Check]:
    yield Check("digest", CheckState.HOLDS, checked.digest)
    yield _signature(attested, trusted)
    yield _check("bundles", attested.refused, _forms(attested))
    yield _check(
        "subject",
        [f"one is for {' and '.join(moved.subjects)}" for moved in _moved(checked, attested)],
        "all are for this image",
    )
    yield _check("provenance", [*_provenance(checked, attested)], f"of stack {_stack(checked)}")
    if not (attested.gates if gate is None else (gate,)):
        yield Check("gate", CheckState.FAILS, "no gate is passed")
    for name in attested.gates if gate is None else (gate,):
        yield _check(f"gate {name}", [*_passed(checked, attested, name)], "passed")


def _against(checked: Image, attested: Claims, stack: Stack, gate: str | None, gates_file: Path | None) -> Iterator[Check]:
    """Check the attestations against the pins and the gates of the stack at hand."""
    pinned = statement.dependencies(stack)
    built = [inner(item.predicate, "buildDefinition", "resolvedDependencies") for item in attested.of(statement.PROVENANCE)]
    other = ["its provenance names other pins than this stack's"] if any(item != pinned for item in built) else []
    lanes = [
        inner(item.predicate, "buildDefinition", "externalParameters", "lane") for item in attested.of(statement.PROVENANCE)
    ]
    other += ["its provenance names another lane than this stack's"] if any(lane != stack.lane for lane in lanes) else []
    yield _check("pins", [*admission.unlike(checked, stack), *other], "labels and provenance name the pins at hand")
    now = gates_file or stack.root / gates.FILE
    for name in attested.gates if gate is None else (gate,):
        yield _check(
            f"gate {name} now",
            [*_judged(checked, attested, stack, name, now)],
            "passed by the attested verdicts, judged again",
        )


def _check(name: str, problems: Sequence[str], good: str) -> Check:
    return Check(name, CheckState.FAILS if problems else CheckState.HOLDS, "; ".join(problems) or good)


def _signature(attested: Claims, trusted: Trusted | None) -> Check:
    if trusted is None:
        return Check("signature", CheckState.UNCHECKED, "no key was given: anyone could have made the attestations")
    who = trust.name(trusted)
    if not attested.statements:
        return Check("signature", CheckState.FAILS, f"none of {attested.foreign} attestations is signed {who}")
    others = f", {attested.foreign} by others are ignored" if attested.foreign else ""
    return Check("signature", CheckState.HOLDS, f"{len(attested.statements)} attestations are signed {who}{others}")


def _forms(attested: Claims) -> str:
    return f"{attested.bundled} attestations are Sigstore bundles, {attested.earlier} have cosign's earlier form"


def _moved(checked: Image, attested: Claims) -> Iterator[Statement]:
    """Yield statements about other images, which somebody has attached here."""
    for item in attested.statements:
        if checked.digest not in item.subjects:
            yield item


def _provenance(checked: Image, attested: Claims) -> Iterator[str]:
    given = attested.of(statement.PROVENANCE)
    if not given:
        yield "there is none"
    for item in given:
        kind = inner(item.predicate, "buildDefinition", "buildType")
        if kind != statement.BUILD:
            yield f"it is for another kind of build ({kind!r:.80})"
        elif inner(item.predicate, "buildDefinition", "externalParameters", "stack") != _stack(checked):
            yield "it is for another stack than the image's label"


def _passed(checked: Image, attested: Claims, name: str) -> Iterator[str]:
    """Yield the reasons why a gate was not passed, according to its summaries and the verdicts that they name."""
    summaries = [item.predicate for item in attested.of(statement.SUMMARY) if gate_of(item.predicate) == name]
    if not summaries:
        yield "no summary says that it was passed"
    platforms = {platform.digest for platform in checked.platforms}
    for recorded in summaries:
        if recorded.get("verificationResult") != "PASSED":
            yield "its summary says that it was not passed"
        if recorded.get("stack_digest") != _stack(checked):
            yield "its summary is for another stack than the image's label"
        if not recorded.get("inputAttestations"):
            yield "its summary names no verdict"
        for digest in _named(recorded):
            try:
                given = _verdict(attested, digest).verdict
            except StackError as refused:
                yield str(refused)
                continue
            if given.stack != _stack(checked) or given.image not in platforms:
                yield f"the verdict {digest} is for the stack {given.stack} and the image {given.image}"
            if given.gates.get(name) != inner(recorded, "policy", "digest", "sha256"):
                yield f"the verdict {digest} was made under another gate"


def _judged(checked: Image, attested: Claims, stack: Stack, name: str, gates_file: Path) -> Iterator[str]:
    """Yield the reasons why the attested verdicts do not pass the current gate."""
    summaries = [item.predicate for item in attested.of(statement.SUMMARY) if gate_of(item.predicate) == name]
    gate = gates.load(gates_file, name)
    if any(inner(recorded, "policy", "digest", "sha256") != gates.digest(gate) for recorded in summaries):
        yield "the gate has changed since then"
    named = dict.fromkeys(digest for recorded in summaries for digest in _named(recorded))
    verdicts = []
    for digest in named:
        try:
            verdicts.append(_verdict(attested, digest))
        except StackError as refused:
            yield str(refused)
    yield from admission.verdict_problems(checked, gates.released(stack), gate, verdicts, None)


def _named(summary: Mapping[str, Any]) -> list[str]:
    """Return the digests of the verdicts that a summary names."""
    return [str(inner(item, "digest", "sha256")) for item in summary.get("inputAttestations") or []]


def _verdict(attested: Claims, digest: str) -> VerdictFile:
    """Return the attested verdict with a digest, after computing the digest again.

    Raises:
        StackError: there is no such verdict, or it was changed.

    """
    for item in attested.of(statement.VERDICT):
        if item.predicate.get("digest") == digest:
            data = layout.encode(item.predicate)
            read = verdict.read(data, f"the attested verdict {digest[:12]}")
            return VerdictFile(Path(f"attested verdict {digest[:12]}.json"), data, read)
    raise StackError(f"the verdict {digest}, which its summary names, is missing")


def _stack(checked: Image) -> str | None:
    """Return the stack that an image's labels name; None if its platforms disagree."""
    stacks = {platform.labels.get(labels.STACK) for platform in checked.platforms}
    return stacks.pop() if len(stacks) == 1 else None


def demand(report: Report) -> None:
    """Refuse a report with a check that does not hold.

    Raises:
        StackError: a check does not hold; the message names the first.

    """
    if not report.holds:
        raise StackError(f"{report.image.reference.shown} is not verified ({report.problems[0]})", "stack image verify")
