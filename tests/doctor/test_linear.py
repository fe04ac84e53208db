# SPDX-License-Identifier: Apache-2.0
"""A log is read in time that is proportional to its length, whatever stands in it again and again."""

import re
import time
from collections.abc import Iterator

from stack.deploy import vllm_log
from stack.doctor import logs

LINE, LINES = 2**14, 8
SECONDS = 20.0
"""For all of them together; they take 1 s, and did not end in 100 s when gaps in patterns had no bound."""
_GAP = re.compile(r"\(\?|\.\{|\[|\.\*|\.\+|\\[swd]|\|")
MORE = ("attention backends found for x Reasons: {", "a: [", "cvt.e2m1x2", "Reasons: {a: [", "model='", "Killed a/", "a", "A.")


def beginnings() -> Iterator[str]:
    """The literal beginning of each pattern: a line of nothing else has the most places at which a search can begin."""
    for words, pattern, _ in vllm_log._PATTERNS:
        yield from (words, literal(pattern.pattern))
    yield from MORE


def rules() -> Iterator[str]:
    """The literal beginnings of rules' patterns: each is searched in every line."""
    for known in logs.known():
        for pattern in known.patterns():
            yield from pattern.literals


def literal(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", _GAP.split(pattern)[0])


def test_lines_that_begin_a_pattern_again_and_again() -> None:
    asked = {one for one in beginnings() if one.strip()}
    assert len(asked) > 60
    began = time.process_time()
    for one in sorted(asked):
        logs.of("\n".join([repeated(one)] * LINES))
        assert time.process_time() - began < SECONDS, one


def test_lines_that_begin_a_rule_s_pattern_again_and_again() -> None:
    asked = {one for one in rules() if one.strip()}
    assert len(asked) > 300
    began = time.process_time()
    logs.of("\n".join(repeated(one) for one in sorted(asked)))
    assert time.process_time() - began < SECONDS


def repeated(text: str) -> str:
    return (text * (LINE // len(text) + 1))[:LINE]
