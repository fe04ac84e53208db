# SPDX-License-Identifier: Apache-2.0
"""Publish an image: check it, push it by its digest, attest it, read it back, verify it, and only then set its tag.

A killed run leaves no tag without attestations; the next run continues it.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import (
    admission,
    attestations,
    floating_tags,
    image,
    layers,
    layout,
    pulling,
    reference,
    skopeo,
    statement,
    trust,
    verify,
)
from stack.images.envelope import Signer as KeySigner
from stack.images.floating_tags import Move
from stack.images.image import Image
from stack.images.keyless import KeylessSigner
from stack.images.policy import Policy
from stack.images.reference import Reference
from stack.images.trust import Trusted
from stack.images.verify import Report
from stack.model import digest, verdict
from stack.model.stack import Stack
from stack.model.verdict import VerdictFile
from stack.store import cache
from stack.validation import gates
from stack.validation.gates import Gate

Signer = KeySigner | KeylessSigner
_ROUNDS = 3
"""How often attestations are attached that another writer has replaced; each is there in one form at least."""


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """An image to publish: the image of a layout, its name (`HOST/NAME:TAG`), the gate, and the verdicts.

    `policy` has the trusted gates and signers. `moves` are moving tags to point at the image as well.
    """

    name: Reference
    source: Reference
    gate: str
    verdicts: tuple[Path, ...]
    policy: Policy
    boms: tuple[Path, ...] = ()
    moves: tuple[str, ...] = ()
    tls: bool = True


@dataclass(frozen=True, slots=True)
class Published:
    """The result of publishing; `new` is false if the image was published before and nothing had to be done."""

    digest: str
    new: bool
    moves: tuple[Move, ...]


class NotAdmittedError(StackError):
    """Raised when the image may not be published; `problems` has the reasons, a sentence for each."""

    def __init__(self, gate: str, problems: Sequence[str]) -> None:
        super().__init__(f"not published: the gate {gate} is not passed ({problems[0]})", "see what the verdicts say")
        self.problems = tuple(problems)


def publish(request: PublishRequest, stack: Stack, signer: Signer, tell: Callable[[str], None]) -> Published:
    """Publish an image.

    Raises:
        NotAdmittedError: verdicts, labels or base forbid it; nothing was pushed.
        StackError: anything else failed; a tag is only set after everything else is done.

    """
    name, repository = _named(request.name), Reference(request.name.place)
    moves = [reference.tag(moving) for moving in dict.fromkeys(request.moves) if moving != name.tag]
    tell("look at the image")
    source_image = image.read(request.source)
    gate = gates.load(request.policy.gates, request.gate)
    verdicts, unreadable = verdict.load_files(request.verdicts)
    if problems := (*unreadable, *admission.problems(source_image, stack, gate, verdicts, request.policy.signers)):
        raise NotAdmittedError(gate.name, problems)
    layers.check(source_image)
    tell("look at the registry")
    tagged = _demand_free(name, source_image.digest, request.tls)
    for tag in moves:
        floating_tags.demand_moving(repository.tagged(tag), tls=request.tls, unless=source_image.digest)
    done = tagged and _complete(source_image, repository, stack, signer, request)
    if not done:
        _push(source_image, repository, request, tell)
        statements = _statements(source_image, request, stack, signer, gate, verdicts)
        for _ in range(_ROUNDS):
            if not _complete(source_image, repository, stack, signer, request):
                tell("attest")
                _attest(source_image, repository, statements, signer, request)
            tell("read back")
            _read_back(source_image, repository, stack, signer, request)
            # Reading back takes longer than other writers need to replace an index that they read before.
            if _complete(source_image, repository, stack, signer, request):
                break
        tell("tag")
        if _demand_free(name, source_image.digest, request.tls) is False:
            floating_tags.put(repository, source_image.digest, str(name.tag), tls=request.tls)
    return Published(source_image.digest, not done, floating_tags.move(repository, source_image.digest, moves, tls=request.tls))


def _named(name: Reference) -> Reference:
    if name.layout or name.tag is None:
        raise StackError(f"{name.shown} is not a tag in a registry", "write HOST/NAME:TAG")
    reference.tag(name.tag)
    return name


def _demand_free(name: Reference, wanted: str, tls: bool) -> bool:
    """Return whether the tag exists with the wanted digest; tags never change.

    Raises:
        StackError: the tag exists with another digest.

    """
    actual = floating_tags.digest_of(name, tls=tls)
    if actual not in (None, wanted):
        raise StackError(f"{name.shown} is {actual} already, but this image is {wanted}", "tags never change: use another one")
    return actual is not None


def _complete(source_image: Image, repository: Reference, stack: Stack, signer: Signer, request: PublishRequest) -> bool:
    """Return whether all attestations exist in each form and verify."""
    try:
        report = _verified(source_image, repository, stack, signer, request)
    except skopeo.Absent:
        return False
    claims = report.claims
    earlier = claims.earlier if isinstance(signer, KeySigner) else len(claims.statements)
    return report.holds and not claims.unbundled and earlier == len(claims.statements)


def _push(source_image: Image, repository: Reference, request: PublishRequest, tell: Callable[[str], None]) -> None:
    tell("push")
    # skopeo 1.9 finds an image with a Docker manifest only if no tag is given.
    only = len(layout.listed(Path(request.source.place))) == 1
    source = replace(request.source, tag=None) if only else request.source
    skopeo.copy(source, repository.at(source_image.digest), all_=True, tls=request.tls)


def _attest(
    source_image: Image, repository: Reference, statements: Sequence[bytes], signer: Signer, request: PublishRequest
) -> None:
    """Sign what was not signed before, and attach everything in each form in which it is not attached yet."""
    there = attestations.fetch(replace(source_image, reference=repository.at(source_image.digest)), tls=request.tls)
    signed = {item: payload for item in there if (payload := trust.payload(item, _trusted(signer))) is not None}
    new = [one for one in statements if not any(attestations.same(one, other) for other in signed.values())]
    items = [*signed, *(attestations.sign(signer, one) for one in new)]
    attestations.attach(source_image, repository, items, signer, tls=request.tls)


def _statements(
    source_image: Image, request: PublishRequest, stack: Stack, signer: Signer, gate: Gate, judged: Sequence[VerdictFile]
) -> list[bytes]:
    """Make all statements."""
    who = f"urn:stack:key:{signer.public.keyid}" if isinstance(signer, KeySigner) else signer.trusted.identity
    verdicts = [verdict.as_json(each.verdict) for each in judged]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    digests = [str(attested["digest"]) for attested in verdicts]
    predicates: list[tuple[str, dict[str, Any]]] = [
        (statement.PROVENANCE, statement.provenance(source_image, stack, who)),
        *(statement.bom(file) for file in request.boms),
        *((statement.VERDICT, attested) for attested in verdicts),
        (statement.SUMMARY, statement.summary(request.name.shown, digest.of(stack), gate, digests, who, now)),
    ]
    return [statement.make(source_image, request.name.shown, kind, predicate) for kind, predicate in predicates]


def _verified(source_image: Image, repository: Reference, stack: Stack, signer: Signer, request: PublishRequest) -> Report:
    where, gates_file = repository.at(source_image.digest), request.policy.gates
    return verify.verify(where, stack, _trusted(signer), request.gate, tls=request.tls, gates_file=gates_file)


def _trusted(signer: Signer) -> Trusted:
    return signer.public if isinstance(signer, KeySigner) else signer.trusted


def _read_back(source_image: Image, repository: Reference, stack: Stack, signer: Signer, request: PublishRequest) -> None:
    """Fetch the image as a user would, and verify it.

    Raises:
        StackError: it differs from what was pushed.

    """
    folder = Path(request.source.place).absolute().parent / ".read-back"
    with cache.lock(folder):
        shutil.rmtree(folder, ignore_errors=True)  # a killed run leaves a copy as large as the image
        try:
            layers.check(image.read(pulling.pull(repository.at(source_image.digest), folder / "image", tls=request.tls)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    verify.demand(_verified(source_image, repository, stack, signer, request))
