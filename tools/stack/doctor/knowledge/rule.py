# SPDX-License-Identifier: Apache-2.0
"""A rule: what it matches, what that means, and what to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property

from packaging.version import InvalidVersion, Version

from stack.base.pattern import Pattern
from stack.doctor.finding import Severity


class Sure(StrEnum):
    """How sure a rule's cause is where the rule fits."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Origin(StrEnum):
    """Where a rule comes from. A rule of a stack came with a checkout: its text is shown as the stack's."""

    PACKAGE = "package"
    STACK = "stack"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a value by its name: `NAME`, `NAME = a|b`, `NAME != a`, `NAME > 1G`, or of another name: `A > B`."""

    name: str
    sign: str = ""
    value: str = ""

    def __str__(self) -> str:
        """Return it as written."""
        return f"{self.name} {self.sign} {self.value}".strip()


@dataclass(frozen=True, slots=True)
class Settings:
    """Conditions on one command that serves.

    Attributes:
        flags: on its flags; a condition without a sign wants the flag to be given.
        variables: on environment variables.
        absent: flags and variables that must not be given.
        several_nodes: whether it serves on several nodes; None: either.
        rank: `first` or `other` node; None: either.
        replace, remove, append: how `--fix` mends it: flags with a new value, names that go, flags that are added.

    """

    flags: tuple[Condition, ...] = ()
    variables: tuple[Condition, ...] = ()
    absent: tuple[str, ...] = ()
    several_nodes: bool | None = None
    rank: str | None = None
    replace: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    append: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class When:
    """Conditions on the server of a log, or on the command of a script; each is a glob without regard to case, None: any.

    `ranks`: least number of ranks.
    """

    model: str | None = None
    quantization: str | None = None
    moe: str | None = None
    attention: str | None = None
    ready: bool | None = None
    ranks: int | None = None

    @property
    def count(self) -> int:
        """Number of conditions."""
        named = (self.model, self.quantization, self.moe, self.attention, self.ready, self.ranks)
        return sum(value is not None for value in named)


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes:
        id: its name, unique.
        title: the cause in a few words.
        means: what it means, in plain words.
        ways: what to do, a command or a setting; of several ways one is enough.
        severity: WRONG, or NOTE for what is only worth knowing.
        sure: how sure the cause is.
        follows: whether it is a consequence of something else, so never the cause while one is known.
        general: whether another rule that fits says more.
        before_start: whether it is about a container that ends before vLLM starts.
        lines: patterns of log lines that come in this order.
        any: patterns of which one line has to fit, after `lines`.
        dmesg: patterns of which one line of the kernel has to fit.
        unless: patterns of lines that rule it out, wherever they stand.
        window: most lines from the first to the last of `lines`.
        told: whether lines of the level INFO count.
        when: conditions on the server.
        facts: conditions on facts of a machine.
        settings: conditions on a command in a script; None: the rule is not about scripts.
        since, until: first and last release of vLLM (inclusive).
        hardware: names of `HARDWARE`; empty: any.
        evidence: public reports, `owner/repository#number`, or a source file.
        matches, misses: examples that it must match, and near misses.
        origin: where it comes from; `file`: the name of its file.

    """

    id: str
    title: str
    means: str
    ways: tuple[str, ...]
    severity: Severity
    sure: Sure
    follows: bool
    general: bool
    before_start: bool
    lines: tuple[Pattern, ...]
    any: tuple[Pattern, ...]
    dmesg: tuple[Pattern, ...]
    unless: tuple[Pattern, ...]
    window: int
    told: bool
    when: When
    facts: tuple[Condition, ...]
    settings: Settings | None
    since: str | None
    until: str | None
    hardware: tuple[str, ...]
    evidence: tuple[str, ...]
    matches: tuple[str, ...]
    misses: tuple[str, ...]
    origin: Origin
    file: str

    @cached_property
    def fix(self) -> str:
        """All ways to mend it, as one text."""
        return "; or ".join(self.ways)

    @property
    def kind(self) -> str:
        """What it looks at: `log`, `machine` or `script`."""
        return "script" if self.settings is not None else "machine" if self.facts else "log"

    @cached_property
    def steps(self) -> tuple[tuple[Pattern, ...], ...]:
        """The patterns of log lines in order; of each step one has to fit."""
        return (*((pattern,) for pattern in self.lines), *((self.any,) if self.any else ()))

    @cached_property
    def weight(self) -> tuple[int, int, int]:
        """How specific it is: certainty, then the number of its conditions, then its literal text."""
        order = {Sure.CERTAIN: 2, Sure.LIKELY: 1, Sure.POSSIBLE: 0}
        conditions = len(self.steps) + self.when.count + len(self.facts) + bool(self.hardware)
        return order[self.sure], conditions, max((pattern.size for pattern in self.patterns()), default=0)

    def patterns(self) -> Iterator[Pattern]:
        """Yield all of its patterns."""
        yield from (*self.lines, *self.any, *self.dmesg, *self.unless)

    def is_of(self, version: str | None) -> bool:
        """Tell whether it is about a release of vLLM; an unknown one counts."""
        if version is None or (self.since is None and self.until is None):
            return True
        try:
            release = Version(Version(version).base_version)
        except InvalidVersion:
            return True
        return not (
            (self.since is not None and release < Version(self.since))
            or (self.until is not None and release > Version(self.until))
        )

    def is_on(self, hardware: frozenset[str] | None) -> bool:
        """Tell whether it is about hardware with one of these names; unknown hardware (None) counts."""
        return not self.hardware or hardware is None or not hardware.isdisjoint(self.hardware)


HARDWARE = ("spark", "sm120", "sm121", "sm12x", "sm100", "sm90", "sm8x", "unified", "discrete")
"""Names of hardware in rules. A Spark is spark, sm121, sm12x and unified."""


def of_capability(capability: str, *, unified: bool) -> frozenset[str]:
    """Return the hardware's names by a GPU's compute capability."""
    major, _, minor = capability.partition(".")
    names = {f"sm{major}{minor}", "unified" if unified else "discrete"}
    if major == "12":
        names |= {"sm12x"} | ({"spark"} if minor == "1" else set())
    return frozenset(names | ({"sm8x"} if major == "8" else set()))


def is_like(value: str | None, glob: str | None) -> bool:
    """Tell whether a value fits a glob (`a*|b*`, or none of them: `!a*`) without regard to case; a None glob fits all, a None value none."""
    if glob is None:
        return True
    if glob.startswith("!"):
        return value is not None and not is_like(value, glob[1:])
    return value is not None and any(fnmatchcase(value.lower(), each.strip().lower()) for each in glob.split("|"))
