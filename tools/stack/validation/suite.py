# SPDX-License-Identifier: Apache-2.0
"""Running a suite: which of its cases are asked for, which are known already, and the verdict that grows with each."""

import platform
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

import stack
from stack.base.errors import StackError
from stack.model import digest
from stack.model import stack as stacks
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case, Machine, Outcome, Pinned, Verdict, Weights, load, write
from stack.store import cache as places
from stack.store.sources import Progress
from stack.validation import bound, machine


@dataclass(frozen=True, slots=True)
class Job:
    """The request to a suite. `known` are the cases of an earlier run that need not run again, by name.

    `standing` are the names of cases that need not run either, since other verdicts have them.
    """

    only: tuple[str, ...] = ()
    known: Mapping[str, Case] = field(default_factory=lambda: MappingProxyType({}))
    tell: Progress | None = None
    standing: frozenset[str] = frozenset()

    def wants(self, name: str) -> bool:
        """Whether a case has to run: it is asked for, and its outcome is not known."""
        done = name in self.known or name in self.standing
        return not done and (not self.only or any(fnmatchcase(name, glob) for glob in self.only))

    def step(self, name: str, done: int, total: int | None) -> None:
        """Show progress: of the step so named, `done` of `total` (None: nobody knows)."""
        if self.tell is not None:
            self.tell(name, done, total)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is validated, beside the stack: by which recipe, with which weights, and versions of what runs it.

    Inside an image: the digest of its manifest, and of the gates as they are now, by name.
    """

    recipe: str | None = None
    weights: Weights | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    image: str | None = None
    gates: Mapping[str, Sha256] = field(default_factory=lambda: MappingProxyType({}))


Suite = Callable[[Job], Iterable[Case]]


class NothingToRun(StackError):
    """A verdict at hand already covers every requested case."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Where the verdict goes, and which cases: all, or those whose names match one of `only`; none of `standing`."""

    out: Path
    only: tuple[str, ...] = ()
    resume: bool = False
    tell: Progress | None = None
    standing: frozenset[str] = frozenset()


def begun(carried: Stack, subject: Subject) -> Verdict:
    """A verdict of a stack on this machine as of now, before its first case: not whole."""
    versions = {"stack": stack.__version__, "python": platform.python_version(), "validation": machine.code()}
    return Verdict(
        stack=digest.of(carried),
        pins=MappingProxyType({pin.upstream: Pinned(pin.commit, pin.tag) for pin in carried.pins}),
        made=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        machine=machine.here(),
        versions=MappingProxyType(versions | dict(subject.versions)),
        cases=(),
        recipe=subject.recipe,
        weights=subject.weights,
        whole=False,
        image=subject.image,
        gates=subject.gates,
    )


def run(carried: Stack, suite: Suite, subject: Subject, asked: Asked) -> Verdict:
    """Run a suite; the verdict is written after each case, so that what is killed can be resumed.

    Raises:
        NothingToRun: verdicts at hand have all cases already.
        StackError: no case matches, the suite hands a case back twice, the verdict cannot be written, or what is to be resumed is
            of another stack, machine or subject; or the stack was changed meanwhile, which leaves the verdict without its end.

    """
    verdict = begun(carried, subject)
    before = _before(verdict, asked.out) if asked.resume else verdict
    verdict = replace(verdict, inputs=before.inputs)
    known = {case.name: case for case in before.cases if case.outcome is not Outcome.NOT_RUN}
    cases = dict(known)
    look_at(asked.out)
    for case in suite(Job(asked.only, MappingProxyType(known), asked.tell, asked.standing)):
        if case.name in cases:
            raise StackError(f"the case {case.name} ran twice", "this is a defect of the suite, please report it")
        verdict, cases[case.name] = _bound(carried, verdict, case)
        verdict = replace(verdict, cases=tuple(cases.values()))
        places.put(asked.out, write(verdict))
    if not cases:
        raise NothingToRun("no case has fallen out") if asked.standing else _without_cases(asked)
    _check_unchanged(carried, asked.out)
    verdict = replace(verdict, cases=tuple(cases.values()), whole=True)
    places.put(asked.out, write(verdict))
    return verdict


def _bound(carried: Stack, verdict: Verdict, case: Case) -> tuple[Verdict, Case]:
    """Name the inputs of a case that has run, and list them in its verdict."""
    if case.outcome is Outcome.NOT_RUN:
        return verdict, case
    found = bound.of(carried, case)
    listed = {one.digest: one for one in found.values()}
    named = MappingProxyType({kind: one.digest for kind, one in found.items()})
    return replace(verdict, inputs=MappingProxyType({**verdict.inputs, **listed})), replace(case, inputs=named)


def _check_unchanged(carried: Stack, out: Path) -> None:
    """Suites run for hours, and read files of the stack: what they have seen has to be what the verdict names."""
    if digest.of(stacks.load(carried.root)) != digest.of(carried):
        raise StackError(
            f"{carried.root} was changed while it was validated: {out} has no end and counts for nothing",
            "validate again, or bring the stack back and use --resume",
        )


def look_ahead(carried: Stack, asked: Asked, names: Iterable[str]) -> None:
    """Find out before a suite is prepared what `run` would refuse after it, as far as that is known by then.

    Args:
        carried: the stack.
        asked: what `run` will be asked for.
        names: those of the cases; one that ends in a slash stands for all that begin so.

    Raises:
        StackError: the verdict cannot be written, what is to be resumed is of another stack, or no case matches.

    """
    look_at(asked.out)
    resumed = asked.resume and asked.out.exists()
    if resumed:
        look_at_earlier(carried, asked.out, None, {})
    known = tuple(names)
    if asked.only and not resumed and not any(_may_match(name, glob) for glob in asked.only for name in known):
        raise _without_cases(asked)


def _may_match(name: str, glob: str) -> bool:
    """Whether a glob matches a name; of one that ends in a slash, whether it could match what begins so."""
    if not name.endswith("/"):
        return fnmatchcase(name, glob)
    literal = re.split(r"[*?[]", glob, maxsplit=1)[0]
    return literal.startswith(name) or (literal != glob and name.startswith(literal))


def _without_cases(asked: Asked) -> StackError:
    return StackError(f"no case matches {' '.join(asked.only)}" if asked.only else "the suite has no case", "see --help")


def look_at_earlier(carried: Stack, out: Path, image: str | None, gates: Mapping[str, Sha256]) -> None:
    """Find out before a suite is prepared whether an earlier run's verdict is of another stack, image or gates.

    Raises:
        StackError: it is, or cannot be read.

    """
    if not out.exists():
        return
    before = load(out)
    _refuse(_other(before, replace(before, stack=digest.of(carried), image=image, gates=gates)), out)


def look_at(out: Path, what: str = "verdict") -> None:
    """Find out before anything runs whether a verdict, or something else that `what` names, can be written there.

    Raises:
        StackError: it cannot.

    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=f".{out.name}.", suffix=places.PART, dir=out.parent):
            pass
    except OSError as failed:
        raise StackError(f"no {what} can be written to {out} ({failed.strerror})", "name another file with --out") from failed
    if out.exists() and not out.is_file():
        raise StackError(f"{out} is no file, but something else", "name a file with --out")


def _before(now: Verdict, out: Path) -> Verdict:
    """An earlier run of the same stack, machine, versions and subject; one without cases where there is none.

    Raises:
        StackError: the earlier run is of another: beginning anew would replace what it has found.

    """
    if not out.exists():
        return now
    before = load(out)
    _refuse(_other(before, now), out)
    return before


def _refuse(other: str, out: Path) -> None:
    if other:
        raise StackError(f"{out} cannot be resumed: {other}", "remove it to begin anew, or keep both with --out")


def _other(before: Verdict, now: Verdict) -> str:
    """What an earlier run is of that this one is not, in words; empty where nothing is."""
    if before.stack != now.stack:
        return f"it is of the stack {before.stack[:12]}, this one is {now.stack[:12]}"
    for name in sorted({*before.versions, *now.versions}):
        was, here = (one.versions.get(name, "none") for one in (before, now))
        if was != here:
            return f"it is of {name} {was}, here is {here}"
    differing = _differing(before.machine, now.machine)
    if differing:
        was, here = (getattr(one.machine, differing) for one in (before, now))
        return f"it is of a machine with other {differing} ({was}, here {here})"
    differing = _differing(replace(before, made=now.made, cases=now.cases, whole=now.whole, inputs=now.inputs), now)
    return f"it is of other {differing}" if differing == "gates" else f"it is of another {differing}" if differing else ""


def _differing(one: Machine | Verdict, other: Machine | Verdict) -> str:
    """The first field in which two values differ; empty where none does."""
    return next((each.name for each in fields(one) if getattr(one, each.name) != getattr(other, each.name)), "")
