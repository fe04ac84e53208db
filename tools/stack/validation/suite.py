# SPDX-License-Identifier: Apache-2.0
"""Run a suite: select the cases that have to run, and write the verdict after each case."""

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
from stack.base.progress import Progress, silent
from stack.model import digest
from stack.model import stack as stacks
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case, Machine, Outcome, Pinned, Verdict, Weights, load, write
from stack.store import cache as places
from stack.validation import bound, machine


@dataclass(frozen=True, slots=True)
class Job:
    """A request to a suite to run cases.

    `known` are the cases of an earlier run, by name. `standing` are names of cases that other verdicts have. Neither runs again.
    """

    only: tuple[str, ...] = ()
    known: Mapping[str, Case] = field(default_factory=lambda: MappingProxyType({}))
    tell: Progress = silent
    standing: frozenset[str] = frozenset()

    def wants(self, name: str) -> bool:
        """Return whether a case has to run: it is selected, and its outcome is not known."""
        done = name in self.known or name in self.standing
        return not done and (not self.only or any(fnmatchcase(name, glob) for glob in self.only))


@dataclass(frozen=True, slots=True)
class ValidatedSubject:
    """The subject of a validation besides the stack: recipe, weights, and versions of the software that runs it.

    Inside an image: also the digest of its manifest, and the digests of the present gates, by name.
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
class RunOptions:
    """The verdict's file and the selection of cases: all, or those that match a glob of `only`, without `standing`."""

    out: Path
    only: tuple[str, ...] = ()
    resume: bool = False
    tell: Progress = silent
    standing: frozenset[str] = frozenset()


def begun(carried: Stack, subject: ValidatedSubject) -> Verdict:
    """Create the verdict of a stack on this machine as of now, without cases and not whole."""
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


def run(carried: Stack, suite: Suite, subject: ValidatedSubject, options: RunOptions) -> Verdict:
    """Run a suite. The verdict is written after each case, so that a killed run can be resumed.

    Raises:
        NothingToRun: verdicts at hand have all cases already.
        StackError: no case matches; the suite yields a case twice; the verdict cannot be written; the verdict to be resumed is of
            another stack, machine or subject; or the stack was changed during the run, which leaves the verdict incomplete.
    """
    verdict = begun(carried, subject)
    before = _before(verdict, options.out) if options.resume else verdict
    verdict = replace(verdict, inputs=before.inputs)
    known = {case.name: case for case in before.cases if case.outcome is not Outcome.NOT_RUN}
    cases = dict(known)
    look_at(options.out)
    for case in suite(Job(options.only, MappingProxyType(known), options.tell, options.standing)):
        if case.name in cases:
            raise StackError(f"the case {case.name} ran twice", "this is a defect of the suite, please report it")
        verdict, cases[case.name] = _bound(carried, verdict, case)
        verdict = replace(verdict, cases=tuple(cases.values()))
        places.put(options.out, write(verdict))
    if not cases:
        raise NothingToRun("no case has fallen out") if options.standing else _without_cases(options)
    _check_unchanged(carried, options.out)
    verdict = replace(verdict, cases=tuple(cases.values()), whole=True)
    places.put(options.out, write(verdict))
    return verdict


def _bound(carried: Stack, verdict: Verdict, case: Case) -> tuple[Verdict, Case]:
    """Determine the inputs of a case that ran, and list them in its verdict."""
    if case.outcome is Outcome.NOT_RUN:
        return verdict, case
    inputs = bound.of(carried, case)
    listed = {each.digest: each for each in inputs.values()}
    named = MappingProxyType({kind: each.digest for kind, each in inputs.items()})
    return replace(verdict, inputs=MappingProxyType({**verdict.inputs, **listed})), replace(case, inputs=named)


def _check_unchanged(carried: Stack, out: Path) -> None:
    """Refuse a stack that was changed during the run: the verdict would name a stack that the suite did not read."""
    if digest.of(stacks.load(carried.root)) != digest.of(carried):
        raise StackError(
            f"{carried.root} was changed while it was validated: {out} stays incomplete and counts for nothing",
            "validate again, or restore the stack and use --resume",
        )


def look_ahead(carried: Stack, options: RunOptions, names: Iterable[str]) -> None:
    """Check before a suite is prepared whether `run` would refuse the request, as far as this is known by then.

    Args:
        carried: the stack.
        options: the request that `run` will get.
        names: the names of the cases; a name that ends in a slash stands for all names that begin with it.

    Raises:
        StackError: the verdict cannot be written, the verdict to be resumed is of another stack, or no case matches.

    """
    look_at(options.out)
    resumed = options.resume and options.out.exists()
    if resumed:
        look_at_earlier(carried, options.out, None, {})
    known = tuple(names)
    if options.only and not resumed and not any(_may_match(name, glob) for glob in options.only for name in known):
        raise _without_cases(options)


def _may_match(name: str, glob: str) -> bool:
    """Return whether a glob matches a name. If the name ends in a slash: whether the glob could match a name that begins with it."""
    if not name.endswith("/"):
        return fnmatchcase(name, glob)
    literal = re.split(r"[*?[]", glob, maxsplit=1)[0]
    return literal.startswith(name) or (literal != glob and name.startswith(literal))


def _without_cases(options: RunOptions) -> StackError:
    return StackError(f"no case matches {' '.join(options.only)}" if options.only else "the suite has no case", "see --help")


def look_at_earlier(carried: Stack, out: Path, image: str | None, gates: Mapping[str, Sha256]) -> None:
    """Check before a suite is prepared that an earlier verdict is of the same stack, image and gates.

    Raises:
        StackError: it is of another one, or cannot be read.

    """
    if not out.exists():
        return
    before = load(out)
    _refuse(_other(before, replace(before, stack=digest.of(carried), image=image, gates=gates)), out)


def look_at(out: Path, what: str = "verdict") -> None:
    """Check before anything runs that a file can be written; `what` names its content in the error.

    Raises:
        StackError: it cannot be written.

    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=f".{out.name}.", suffix=places.PART, dir=out.parent):
            pass
    except OSError as failed:
        raise StackError(f"no {what} can be written to {out} ({failed.strerror})", "name another file with --out") from failed
    if out.exists() and not out.is_file():
        raise StackError(f"{out} is not a regular file", "name a file with --out")


def _before(now: Verdict, out: Path) -> Verdict:
    """Load the verdict of an earlier run of the same stack, machine, versions and subject, or `now` if there is none.

    Raises:
        StackError: the earlier run is of another stack, machine or subject. Beginning anew would replace its results.

    """
    if not out.exists():
        return now
    before = load(out)
    _refuse(_other(before, now), out)
    return before


def _refuse(other: str, out: Path) -> None:
    if other:
        raise StackError(f"{out} cannot be resumed: {other}", "remove it to begin anew, or keep both with --out FILE")


def _other(before: Verdict, now: Verdict) -> str:
    """Describe the first difference between the subjects of an earlier run and of this one; empty if there is none."""
    if before.stack != now.stack:
        return f"it is of the stack {before.stack[:12]}, this one is {now.stack[:12]}"
    for name in sorted({*before.versions, *now.versions}):
        was, here = (each.versions.get(name, "none") for each in (before, now))
        if was != here:
            return f"it is of {name} {was}, here is {here}"
    differing = _differing(before.machine, now.machine)
    if differing:
        was, here = (getattr(each.machine, differing) for each in (before, now))
        return f"it is of a machine with other {differing} ({was}, here {here})"
    differing = _differing(replace(before, made=now.made, cases=now.cases, whole=now.whole, inputs=now.inputs), now)
    return f"it is of other {differing}" if differing == "gates" else f"it is of another {differing}" if differing else ""


def _differing(one: Machine | Verdict, other: Machine | Verdict) -> str:
    """Name the first field in which two values differ; empty if none does."""
    return next((each.name for each in fields(one) if getattr(one, each.name) != getattr(other, each.name)), "")
