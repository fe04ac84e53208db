# SPDX-License-Identifier: Apache-2.0
"""Match rules with the lines of logs and of the kernel, and with facts of a machine."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stack.base.pattern import Pattern
from stack.base.prefilter import Prefilter
from stack.deploy.vllm_log import Line, Reading
from stack.doctor.knowledge import advice, values
from stack.doctor.knowledge.rule import Rule, When, is_like

_KERNEL = re.compile(r"(?:\[[^\]]{3,40}\] |.{0,60}\bkernel: ?|<\d{1,3}>).{0,40}|NVRM: ")
_LONGEST = 4000
"""Characters of a line that are searched; of vLLM's longer lines the rest is a configuration or a request."""
_BLOCK = 256
"""Lines that are searched together for words."""
_QUIET = ("DEBUG", "INFO")
"""Levels of lines that tell why something was not chosen, which is no error."""
_HARDWARE: Sequence[tuple[str, tuple[str, ...]]] = (
    ("spark", ("GB10", "DGX Spark", "sm_121", "SM121", "apability 12.1", "apability: 12.1")),
    ("sm120", ("RTX PRO 6000", "RTX 5090", "RTX 5080", "Device capability 12.0")),
    ("sm100", ("B200", "GB200", "GB300", "B300")),
    ("sm90", ("H100", "H200", "GH200")),
    ("sm8x", ("A100", "RTX 3090", "RTX 4090", "L40S")),
)
_MORE = {
    "spark": {"spark", "sm121", "sm12x", "unified"},
    "sm120": {"sm120", "sm12x", "discrete"},
    "sm100": {"sm100", "discrete"},
    "sm90": {"sm90", "discrete"},
    "sm8x": {"sm8x", "discrete"},
}
_SIZES = ("world_size=", "tensor_parallel_size")
_RANKS = re.compile(r"\bworld_size=(\d{1,5})\b|tensor_parallel_size[=:'\" ]{1,4}(\d{1,5})\b")


@dataclass(frozen=True, slots=True)
class Server:
    """Facts of a server that its log names, for the conditions of rules. `hardware`: names of it; None if the log does not say.

    `given`: settings that the log names.
    """

    reading: Reading
    hardware: frozenset[str] | None = None
    ranks: int = 1
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule that fits, with the lines that speak for it; the last one is where it fits."""

    rule: Rule
    lines: tuple[Line, ...]

    @property
    def line(self) -> Line:
        """The line where it fits."""
        return self.lines[-1]


def server(lines: Sequence[Line], reading: Reading, hardware: frozenset[str] | None = None) -> Server:
    """Collect from a log what conditions of rules ask for; `hardware` is what is known besides it."""
    found, ranks = set[str](), 1
    for start in range(0, len(lines), _BLOCK):
        block = lines[start : start + _BLOCK]
        # Most blocks of lines have none of these words.
        joined = "\n".join([line.text for line in block])
        if hardware is None:
            found |= {name for name, words in _HARDWARE if any(word in joined for word in words)}
        for line in block if any(word in joined for word in _SIZES) else ():
            if any(word in line.text for word in _SIZES):
                ranks = max([ranks, *(int(one or other) for one, other in _RANKS.findall(line.text[:4000]))])
    # Two kinds of GPUs are named where a library lists what it supports: then nothing is known.
    named = frozenset(_MORE[found.pop()]) if len(found) == 1 else None
    return Server(reading, hardware if hardware is not None else named, ranks, advice.given(lines, reading))


def is_kernel(line: Line) -> bool:
    """Tell whether a line was written by the kernel."""
    return not line.level and not line.process and _KERNEL.match(line.text) is not None


def in_lines(rules: Iterable[Rule], lines: Sequence[Line], about: Server) -> Iterator[Hit]:
    """Yield the rules that fit a log, each with the first lines that it fits.

    The time is linear in the length of the log: a pattern is searched only in lines that may have its words.
    """
    every = [_Progress(rule) for rule in rules if rule.kind == "log" and _applies(rule, about)]
    by_word = dict[str, list[_Progress]]()
    for progress in every:
        for word in progress.words():
            by_word.setdefault(word, []).append(progress)
    quiet = [word for word, found in by_word.items() if any(progress.is_told for progress in found)]
    filters = {False: Prefilter(by_word), True: Prefilter(quiet)}
    for line, words in _possible(filters, lines):
        text = line.text[:_LONGEST] if words else ""
        given = [word for word in words if word in text]
        if given:
            is_quiet, kernel = line.level in _QUIET, is_kernel(line)
            for progress in {id(each): each for word in given for each in by_word[word]}.values():
                if progress.is_told or not is_quiet:
                    progress.take(line, text, kernel=kernel, quiet=is_quiet)
    for progress in every:
        if progress.lines is not None and not progress.ruled_out:
            yield Hit(progress.rule, progress.lines)


def _possible(filters: "Mapping[bool, Prefilter]", lines: Sequence[Line]) -> "Iterator[tuple[Line, tuple[str, ...]]]":
    """Yield each line with the words of rules that may stand in it; `filters`: that of loud lines, and that of quiet ones."""
    for start in range(0, len(lines), _BLOCK):
        block = lines[start : start + _BLOCK]
        found = dict[int, tuple[str, ...]]()
        for is_quiet, prefilter in filters.items():
            places = [place for place, line in enumerate(block) if (line.level in _QUIET) is is_quiet]
            found |= zip(places, prefilter.possible([block[place].form[:_LONGEST] for place in places]), strict=True)
        yield from ((line, found[place]) for place, line in enumerate(block))


class Patterns:
    """A set of patterns; one has to fit a line."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        """Sort them by words that a line has to have."""
        self._by_word: dict[str, list[Pattern]] = {}
        for pattern in patterns:
            for word in pattern.words:
                self._by_word.setdefault(word, []).append(pattern)
        self._prefilter = Prefilter(self._by_word)

    def fit(self, line: Line) -> bool:
        """Tell whether one of them fits."""
        (words,) = self._prefilter.possible([line.form])
        return any(pattern.fits(line.text) for word in words for pattern in self._by_word[word])


class _Progress:
    """How far a rule has fitted."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.begun = list[Line]()
        self.lines: tuple[Line, ...] | None = None
        self.ruled_out = False
        self.is_told = rule.told or bool(rule.unless)

    def words(self) -> frozenset[str]:
        """Return words; a line without any of them fits none of the rule's patterns."""
        return frozenset(word for pattern in self.rule.patterns() for word in pattern.words)

    def take(self, line: Line, text: str, *, kernel: bool, quiet: bool) -> None:
        """Read a line; a `quiet` one only tells, and counts for rules that ask for what is told."""
        rule = self.rule
        if rule.unless and any(pattern.fits(text) for pattern in rule.unless):
            self.ruled_out = True
        if self.lines is not None or (quiet and not rule.told):
            return
        if rule.dmesg and kernel and any(pattern.fits(text) for pattern in rule.dmesg):
            self.lines = (line,)
        elif rule.steps:
            self._step(line, text)

    def _step(self, line: Line, text: str) -> None:
        steps = self.rule.steps
        if self.begun and line.number - self.begun[0].number > self.rule.window:
            self.begun = []
        # One line may fit several steps: a command line and its error in one.
        while len(self.begun) < len(steps) and any(pattern.fits(text) for pattern in steps[len(self.begun)]):
            self.begun.append(line)
            if len(self.begun) == len(steps):
                self.lines = tuple(dict.fromkeys(self.begun))
                return


def _applies(rule: Rule, about: Server) -> bool:
    return rule.is_of(about.reading.version) and rule.is_on(about.hardware) and fits(rule.when, about)


def fits(when: When, about: Server) -> bool:
    """Tell whether a rule's conditions hold for a server; a backend that the log does not name counts as any."""
    reading = about.reading
    moe = "|".join(backend.name for backend in reading.moe) or None
    attention = "|".join(backend.name for backend in reading.attention) or None
    return (
        is_like(reading.model, when.model)
        and is_like(reading.quantization, when.quantization)
        and (moe is None or is_like(moe, when.moe))
        and (attention is None or is_like(attention, when.attention))
        and (when.ready is None or when.ready is reading.ready)
        and (when.ranks is None or about.ranks >= when.ranks)
    )


def in_facts(rules: Iterable[Rule], facts: Mapping[str, str], hardware: frozenset[str] | None) -> Iterator[Rule]:
    """Yield the rules whose conditions on facts of a machine all hold."""
    for rule in rules:
        if rule.kind == "machine" and rule.is_on(hardware) and all(values.holds(condition, facts) for condition in rule.facts):
            yield rule
