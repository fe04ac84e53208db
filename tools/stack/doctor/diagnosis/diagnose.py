# SPDX-License-Identifier: Apache-2.0
"""Find the root cause among the rules that fit a log: by time, by process, and by how specific a rule is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stack.deploy.vllm_log import Line
from stack.doctor.diagnosis import order
from stack.doctor.diagnosis.first_error import FirstError, first, first_said
from stack.doctor.finding import Severity
from stack.doctor.knowledge import match
from stack.doctor.knowledge.match import Hit, Server
from stack.doctor.knowledge.rule import Rule

_LASTING = 3600.0
"""Seconds after a failure within which a general rule only repeats it: compiling and loading go on for so long."""
_SAME = 3
"""Lines within which two patterns are about the same message."""
_ASKED = "[shutdown] API server: shutdown triggered", "[shutdown] EngineCore: trigger received signal"
"""Lines of a server that was asked to end."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The causes of a log's errors.

    Attributes:
        root: the cause; None if nothing failed, or no rule knows why.
        others: other causes that fit the same lines, surest first.
        later: failures that are not near the root in time, in their order.
        along: what failed with it and may follow from it.
        follows: lines that are only consequences; `hints`: the rule about them that says most, if there is no root.
        unknown: the first error that no rule knows, if it comes before everything that is known.
        notes: rules of what is only worth knowing.
        kernel: lines of the kernel that speak for the root, too.

    """

    root: Hit | None = None
    others: tuple[Hit, ...] = ()
    later: tuple[Hit, ...] = ()
    along: tuple[Hit, ...] = ()
    follows: tuple[Line, ...] = ()
    hints: tuple[Hit, ...] = ()
    unknown: FirstError | None = None
    notes: tuple[Hit, ...] = ()
    kernel: tuple[Line, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something failed."""
        return self.root is not None or self.unknown is not None or bool(self.follows)


def diagnose(rules: Iterable[Rule], lines: Sequence[Line], about: Server) -> Diagnosis:
    """Diagnose a log. `lines` may end with lines of the kernel's log."""
    hits = [*match.in_lines(rules, lines, about)]
    at = order.times(lines)
    notes = [hit for hit in hits if hit.rule.severity is Severity.NOTE and not hit.rule.follows]
    end = _ending(lines)
    follows = [hit for hit in hits if hit.rule.follows and hit.line.number < end]
    every = [hit for hit in hits if hit.rule.severity is Severity.WRONG and not hit.rule.follows]
    causes = _without_general(every, at) if any(not hit.rule.general for hit in every) else every
    fitting = {hit.rule.id for hit in hits}
    known_patterns = [pattern for rule in rules if rule.follows or rule.id in fitting for pattern in rule.patterns()]
    error = first(lines, at, known_patterns)
    if error is None and not hits and not about.reading.ready:
        error = first_said(lines, at, ())
    known = _ranked(causes, at)
    said = {line.number for hit in causes for line in hit.lines}
    notes = [hit for hit in notes if said.isdisjoint(line.number for line in hit.lines)]
    consequences = tuple(line for hit in follows for line in hit.lines)
    if not known:
        return Diagnosis(follows=consequences, hints=_hints(follows), unknown=error, notes=tuple(notes))
    root, near = known[0], [hit for hit in known[1:] if _is_near(hit, known[0], at)]
    others = tuple(sorted((hit for hit in near if _is_same(hit, root)), key=lambda hit: hit.rule.weight, reverse=True))
    return Diagnosis(
        root,
        others,
        tuple(hit for hit in known[1:] if hit not in near),
        tuple(hit for hit in near if hit not in others),
        consequences,
        (),
        _before(error, root, at),
        tuple(notes),
        tuple(hit.line for hit in every if hit not in causes and match.is_kernel(hit.line)),
    )


def _ending(lines: Sequence[Line]) -> float:
    """Return the line from which a server that was asked to end ends: its later errors about the engine do not count."""
    for line in lines:
        if "[shutdown]" not in line.text:
            continue
        if "unexpectedly" in line.text:
            break
        if any(asked in line.text for asked in _ASKED):
            return line.number
    return float("inf")


def _hints(follows: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the consequence that says most, for a log that has only consequences."""
    return tuple(sorted(follows, key=lambda hit: hit.rule.weight, reverse=True)[:1])


def _without_general(causes: Sequence[Hit], at: Mapping[int, float]) -> list[Hit]:
    """Leave out general rules where a specific one fits at about the same time or before."""
    specific = [hit for hit in causes if not hit.rule.general]
    return [
        hit
        for hit in causes
        if not hit.rule.general or not any(at[other.line.number] <= at[hit.line.number] + order.AT_ONCE for other in specific)
    ]


def _ranked(causes: Sequence[Hit], at: Mapping[int, float]) -> list[Hit]:
    """Order causes: the earliest minute first; in it by process, line, and how specific the rule is."""
    if not causes:
        return []
    begin = min(at[hit.line.number] for hit in causes)
    return sorted(
        causes,
        key=lambda hit: (
            late := at[hit.line.number] - begin > order.AT_ONCE,
            at[hit.line.number] if late else 0,
            hit.rule.general,
            order.process(hit.line),
            hit.line.number,
            *(-part for part in hit.rule.weight),
        ),
    )


def _is_near(hit: Hit, root: Hit, at: Mapping[int, float]) -> bool:
    return abs(at[hit.line.number] - at[root.line.number]) <= order.AT_ONCE


def _is_same(hit: Hit, root: Hit) -> bool:
    return abs(hit.line.number - root.line.number) <= _SAME


def _before(error: FirstError | None, root: Hit, at: Mapping[int, float]) -> FirstError | None:
    """Return the unknown error if it is another one than the root, and comes before it."""
    if error is None or not root.lines:
        return None
    start = min(line.number for line in root.lines)
    if order.process(error.line) > order.process(root.line) or error.line.number >= start - _SAME:
        # Neighbouring lines are of the same message, unless each is an error of its own.
        both = order.process(error.line) == order.process(root.line) and error.line.number < start
        return error if both and error.is_complete and root.rule.weight[1] < 2 else None
    return replace(error) if at[error.line.number] <= at[root.line.number] else None
