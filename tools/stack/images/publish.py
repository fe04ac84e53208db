# SPDX-License-Identifier: Apache-2.0
"""Publishing an image: checked, pushed by its digest, attested, read back and verified, and only then given its tag.

Killed anywhere, it leaves no tag without its attestations, and a second run goes on.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import (
    admission,
    attached,
    floating_tags,
    image,
    layers,
    layout,
    pulling,
    reference,
    skopeo,
    statement,
    verify,
)
from stack.images.envelope import Signer
from stack.images.floating_tags import Move
from stack.images.image import Image
from stack.images.policy import Policy
from stack.images.reference import Reference
from stack.images.verify import Report
from stack.model import digest, verdict
from stack.model.stack import Stack
from stack.store import cache
from stack.validation import gates, signing
from stack.validation.gates import Gate

Tell = Callable[[str], None]
"""Told each step as it begins."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What shall be published: the image of a layout, as `name` (`HOST/NAME:TAG`), by these verdicts for this gate.

    `policy` says which gates there are and whose verdicts count; `moves` are moving tags that go along.
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
    """What came of it; `new` is false where it was published before and nothing was to be done."""

    digest: str
    new: bool
    moves: tuple[Move, ...]


class NotAdmittedError(StackError):
    """The image may not be published; `problems` says why, a sentence each."""

    def __init__(self, gate: str, problems: Sequence[str]) -> None:
        super().__init__(f"not published, the gate {gate} is not passed ({problems[0]})", "see what the verdicts say")
        self.problems = tuple(problems)


def publish(asked: Asked, stack: Stack, signer: Signer, tell: Tell) -> Published:
    """Publish an image.

    Raises:
        NotAdmittedError: verdicts, labels or base do not let it out; nothing was pushed.
        StackError: anything else; no tag was put unless all of it is there.

    """
    name, repository = _named(asked.name), Reference(asked.name.place)
    moves = [reference.tag(one) for one in dict.fromkeys(asked.moves) if one != name.tag]
    with _kept(asked) as kept:
        tell("look at the image")
        found = image.read(kept.source)
        gate = gates.load(kept.policy.gates, kept.gate)
        if problems := admission.problems(found, stack, gate, kept.verdicts, kept.policy.signers):
            raise NotAdmittedError(gate.name, problems)
        layers.check(found)
        tell("look at the registry")
        there = _demand_free(name, found.digest, kept.tls)
        for tag in moves:
            floating_tags.demand_moving(repository.tagged(tag), tls=kept.tls, unless=found.digest)
        done = there and _complete(found, repository, stack, signer, kept)
        if not done:
            _push(found, repository, kept, tell)
            if not _complete(found, repository, stack, signer, kept):
                tell("attest")
                attached.attach(found, repository, _envelopes(found, kept, stack, signer, gate), tls=kept.tls)
            tell("read back")
            _read_back(found, repository, stack, signer, kept)
            tell("tag")
            if _demand_free(name, found.digest, kept.tls) is False:
                floating_tags.put(repository, found.digest, str(name.tag), tls=kept.tls)
        return Published(found.digest, not done, floating_tags.move(repository, found.digest, moves, tls=kept.tls))


def _named(name: Reference) -> Reference:
    if name.layout or name.tag is None:
        raise StackError(f"{name.shown} is no tag in a registry", "write HOST/NAME:TAG")
    reference.tag(name.tag)
    return name


@contextmanager
def _kept(asked: Asked) -> Iterator[Asked]:
    """The same with copies of the verdicts: what is attested is what was judged, whoever edits the files meanwhile."""
    with tempfile.TemporaryDirectory(prefix="stack-publish-") as folder:
        copies = []
        for place, file in enumerate(asked.verdicts):
            kept = Path(folder) / f"{place}" / file.name
            kept.parent.mkdir()
            for one, copy in ((file, kept), (signing.place(file), signing.place(kept))):
                if one.is_file():
                    shutil.copyfile(one, copy)
            copies.append(kept)
        try:
            yield replace(asked, verdicts=tuple(copies))
        except NotAdmittedError as refused:
            raise NotAdmittedError(asked.gate, [_without(one, folder) for one in refused.problems]) from None


def _without(problem: str, folder: str) -> str:
    """A sentence that names the user's file, not our copy of it."""
    before, _, rest = problem.partition(f"{folder}/")
    return before + rest.partition("/")[2] if rest else problem


def _demand_free(name: Reference, wanted: str, tls: bool) -> bool:
    """Whether a tag is there with the digest; tags never change.

    Raises:
        StackError: it is there with another one.

    """
    found = floating_tags.digest_of(name, tls=tls)
    if found not in (None, wanted):
        raise StackError(f"{name.shown} is {found} already, this image is {wanted}", "tags never change: take another one")
    return found is not None


def _complete(found: Image, repository: Reference, stack: Stack, signer: Signer, asked: Asked) -> bool:
    """Whether all attestations are there and hold."""
    try:
        return _verified(found, repository, stack, signer, asked).holds
    except skopeo.Absent:
        return False


def _push(found: Image, repository: Reference, asked: Asked, tell: Tell) -> None:
    tell("push")
    # skopeo 1.9 finds images with Docker's kind of manifest only where no tag is named.
    only = len(layout.listed(Path(asked.source.place))) == 1
    source = replace(asked.source, tag=None) if only else asked.source
    skopeo.copy(source, repository.at(found.digest), all_=True, tls=asked.tls)


def _envelopes(found: Image, asked: Asked, stack: Stack, signer: Signer, gate: Gate) -> list[bytes]:
    """All that is attested, signed."""
    who = f"urn:stack:key:{signer.public.keyid}"
    verdicts = [verdict.as_json(verdict.load(file)) for file in asked.verdicts]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    digests = [str(one["digest"]) for one in verdicts]
    predicates: list[tuple[str, dict[str, Any]]] = [
        (statement.PROVENANCE, statement.provenance(found, stack, who)),
        *(statement.bom(file) for file in asked.boms),
        *((statement.VERDICT, one) for one in verdicts),
        (statement.SUMMARY, statement.summary(asked.name.shown, digest.of(stack), gate, digests, who, now)),
    ]
    return [signer.sign(statement.make(found, asked.name.shown, kind, predicate)) for kind, predicate in predicates]


def _verified(found: Image, repository: Reference, stack: Stack, signer: Signer, asked: Asked) -> Report:
    where, gates_file = repository.at(found.digest), asked.policy.gates
    return verify.verify(where, stack, signer.public, asked.gate, tls=asked.tls, gates_file=gates_file)


def _read_back(found: Image, repository: Reference, stack: Stack, signer: Signer, asked: Asked) -> None:
    """Fetch everything as a user would, and verify it.

    Raises:
        StackError: it is not what was pushed.

    """
    folder = Path(asked.source.place).absolute().parent / ".read-back"
    with cache.lock(folder):
        shutil.rmtree(folder, ignore_errors=True)  # as large as the image, where a publisher was killed
        try:
            layers.check(image.read(pulling.pull(repository.at(found.digest), folder / "image", tls=asked.tls)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    verify.demand(_verified(found, repository, stack, signer, asked))
