# SPDX-License-Identifier: Apache-2.0
"""Say a diagnosis in findings: the cause first, with what speaks for it and what follows from it."""

from collections.abc import Iterator, Mapping, Sequence

from stack.base.text import counted
from stack.doctor.diagnosis.diagnose import Diagnosis
from stack.doctor.diagnosis.first_error import FirstError
from stack.doctor.diagnosis.order import KERNEL
from stack.doctor.finding import Found, Severity
from stack.doctor.knowledge.advice import advice
from stack.doctor.knowledge.match import Hit
from stack.doctor.knowledge.rule import Origin

_SHOWN = 4
_REPORT = "read on from there, or report it: `stack doctor --log FILE --report` prints a block that is ready, without keys, hosts and paths"


def findings(diagnosis: Diagnosis, given: Mapping[str, str], *, ready: bool) -> Iterator[Found]:
    """Yield the findings: the root cause, other causes, later failures, what is unknown, and notes; `given`: the server's settings."""
    if diagnosis.root is not None:
        yield from _known(diagnosis, given)
    if diagnosis.unknown is not None:
        failed = diagnosis.root is not None or bool(diagnosis.follows) or not ready
        yield _unknown(diagnosis.unknown, Severity.WRONG if failed else Severity.NOTE, known=diagnosis.root is not None)
    elif diagnosis.root is None and diagnosis.hints:
        yield _only_consequences(diagnosis, given)
    for hit in diagnosis.notes:
        yield _found(hit, given, Severity.NOTE)


def _known(diagnosis: Diagnosis, given: Mapping[str, str]) -> Iterator[Found]:
    root = diagnosis.root
    assert root is not None
    lines = sorted({line.number for line in diagnosis.follows if line.number < KERNEL} - {line.number for line in root.lines})
    follows = (
        f" Lines {_numbers(lines)} follow from it." if len(lines) > 1 else f" Line {lines[0]} follows from it." if lines else ""
    )
    if diagnosis.kernel:
        follows += f" The kernel's log speaks for it, too: {short(diagnosis.kernel[0].text)}."
    yield _found(root, given, Severity.WRONG, after=follows)
    for hit in diagnosis.others:
        yield _found(hit, given, Severity.NOTE, before="less sure: ")
    for hit in diagnosis.along:
        yield _found(hit, given, Severity.NOTE, before="at the same time, perhaps as a consequence: ")
    for hit in diagnosis.later:
        yield _found(hit, given, Severity.WRONG)


def _found(hit: Hit, given: Mapping[str, str], severity: Severity, before: str = "", after: str = "") -> Found:
    rule = hit.rule
    own = f" (a rule of {rule.file})" if rule.origin is not Origin.PACKAGE else ""
    quote = short(hit.line.text)
    what = f"{before}{quote}: {rule.title}; {rule.means}.{after}{own}"
    because = tuple(line.number % KERNEL for line in hit.lines)
    return Found(
        severity,
        what,
        advice(rule, given),
        hit.line.number,
        rule.id,
        str(rule.sure),
        because,
        rule.evidence,
        title=f"{before}{rule.title}",
        quote=quote,
        means=f"{rule.means}.{after}{own}",
    )


def _unknown(error: FirstError, severity: Severity, *, known: bool) -> Found:
    frames = " ← ".join(f"{_file(frame.file)}:{frame.line} {frame.function}" for frame in reversed(error.frames))
    inside = f"; innermost frames: {frames}" if frames else ""
    why = "no rule knows it" if not known else "no rule knows it, and it comes before the others"
    quote = short(error.line.text)
    return Found(
        severity,
        f"the first error: {quote}: {why}{inside}",
        _REPORT,
        error.line.number,
        title=f"the first error: {why}",
        quote=quote,
        means=inside.removeprefix("; "),
    )


def _only_consequences(diagnosis: Diagnosis, given: Mapping[str, str]) -> Found:
    hit = diagnosis.hints[0]
    number = counted(len(diagnosis.follows), "line")
    quote = short(hit.line.text)
    means = f"{hit.rule.means}. The cause is unknown: {number} with consequences, and none with the error itself"
    because = tuple(line.number % KERNEL for line in diagnosis.follows[:_SHOWN])
    return Found(
        Severity.WRONG,
        f"{quote}: {hit.rule.title}; {means}",
        advice(hit.rule, given),
        hit.line.number,
        hit.rule.id,
        str(hit.rule.sure),
        because,
        hit.rule.evidence,
        title=hit.rule.title,
        quote=quote,
        means=means,
    )


def _numbers(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:_SHOWN]))
    return f"{shown} and more" if len(lines) > _SHOWN else shown


def _file(path: str) -> str:
    """Return the end of a path: the package's part of an installed one."""
    _, _, inside = path.partition("-packages/")
    return inside or path.rpartition("/")[2]


def short(text: str) -> str:
    """Return a line's text without control characters, cut to 160 characters."""
    plain = "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split())).rstrip(":")
    return plain if len(plain) <= 160 else f"{plain[:157]}…"
