# SPDX-License-Identifier: Apache-2.0
"""Cases that need not run again: they passed in a verdict at hand, and passed for the same thing."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain, count, takewhile
from pathlib import Path

from stack.base.errors import StackError
from stack.model import verdict
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case, Machine, Outcome, Verdict, VerdictFile
from stack.validation import gates, machine
from stack.validation.suite import ValidatedSubject

_SAME = ("bench", "model")
"""Versions that say what was measured. All others are of what the inputs of a case cover."""


def names(carried: Stack, given: Iterable[VerdictFile], suite: str, subject: ValidatedSubject) -> frozenset[str]:
    """Name the cases of a suite that passed in verdicts, count for the stack, and need not run again for `subject` on this machine.

    Raises:
        StackError: the validation's cases cannot be named here.

    """
    here = machine.here()

    def fits(one: Verdict, case: Case) -> bool:
        return _is_of(subject, one) and _is_on(here, one, case)

    return gates.passed(gates.release(carried), given, f"{suite}/", fits)


def files(folder: Path) -> list[Path]:
    """List the verdicts of a folder."""
    return sorted(folder.glob("*.json"))


def of_image(folder: Path, image: str, gates_now: Mapping[str, Sha256]) -> list[VerdictFile]:
    """Load the finished verdicts of a folder that were made inside an image, under the gates as they are now."""
    loaded, _ = verdict.load_files(files(folder))
    return [
        each
        for each in loaded
        if each.verdict.whole and each.verdict.image == image and dict(each.verdict.gates) == dict(gates_now)
    ]


def free(target: Path) -> Path:
    """Return the path of a new verdict beside those that count: `target`, or with a number where that has cases."""
    numbered = (target.with_stem(f"{target.stem}-{number}") for number in count(2))
    return next(path for path in chain((target,), numbered) if not path.exists() or _is_without_cases(path))


def _is_without_cases(file: Path) -> bool:
    """Whether a file is a verdict in which no case ran, so that nothing is lost with it."""
    with suppress(StackError):
        return all(case.outcome is Outcome.NOT_RUN for case in verdict.load(file).cases)
    return False


def newest(target: Path) -> Path:
    """Return the path that `free` gave last: what `--resume` goes on with."""
    following = (target.with_stem(f"{target.stem}-{number}") for number in count(2))
    return [target, *takewhile(Path.exists, following)][-1]


def _is_of(subject: ValidatedSubject, one: Verdict) -> bool:
    """Whether a verdict is of the same weights, image, gates, model and benchmark."""
    same = all(one.versions.get(name) == subject.versions.get(name) for name in _SAME if name in subject.versions)
    return same and (one.weights, one.image, dict(one.gates)) == (subject.weights, subject.image, dict(subject.gates))


def _is_on(here: Machine, one: Verdict, case: Case) -> bool:
    """Whether a case that needs a GPU ran on one like this machine's; without one, it cannot run here anyway."""
    needs_gpu = any(need.startswith("sm") for need in case.needs)
    return not needs_gpu or not here.gpus or not _gpus(here).isdisjoint(_gpus(one.machine))


def _gpus(of: Machine) -> set[str]:
    return {gpu.capability for gpu in of.gpus}
