# SPDX-License-Identifier: Apache-2.0
"""Check rules by their own examples, and time their patterns."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stack.deploy import vllm_log
from stack.doctor import inputs, script
from stack.doctor.knowledge import match, settings
from stack.doctor.knowledge.rule import Rule

_LINE = 10**6
"""Characters of the line that a pattern is timed on."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An example that a rule does not treat as it says. `wanted`: whether it has to match."""

    rule: Rule
    example: str
    wanted: bool


def failures(rules: Iterable[Rule]) -> Iterator[Failure]:
    """Yield the examples that do not come out as their rules say."""
    for rule in rules:
        for wanted, examples in ((True, rule.matches), (False, rule.misses)):
            yield from (Failure(rule, example, wanted) for example in examples if matches(rule, example) is not wanted)


def matches(rule: Rule, text: str) -> bool:
    """Tell whether a rule fits a text: a log, the output of commands, or a script, as the rule's kind says."""
    hardware = frozenset(rule.hardware) or None
    if rule.kind == "machine":
        return any(match.in_facts([rule], inputs.of(text), hardware))
    if rule.kind == "script":
        return any(settings.fits([rule], script.parse("example.sh", text), hardware))
    lines = [*vllm_log.lines(text)]
    return any(match.in_lines([rule], lines, match.server(lines, vllm_log.read(text), hardware)))


def slowest(rules: Iterable[Rule]) -> tuple[float, Rule] | None:
    """Return the seconds and the rule of the slowest pattern on a line of one million characters.

    Each line repeats the beginning of the pattern itself: nothing else gives a search as many places to begin.
    """
    worst: tuple[float, Rule] | None = None
    for rule in rules:
        for pattern in rule.patterns():
            unit = next(iter(pattern.literals))
            line = f"{unit * (_LINE // len(unit))}{pattern.word}"
            began = time.process_time()
            pattern.fits(line)
            spent = time.process_time() - began
            if worst is None or spent > worst[0]:
                worst = (spent, rule)
    return worst
