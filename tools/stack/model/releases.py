# SPDX-License-Identifier: Apache-2.0
"""Find out which tags are releases, and put them in order.

A pattern of tags is a glob with one star for the version (`release-*`), or a regular expression with a group named `version`.
Without a pattern, the prefix of the pinned tag counts: the pin `release-1.27.1` makes it `release-*`.
"""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from stack.base.errors import StackError

if TYPE_CHECKING:
    import regex
    from packaging.version import Version

_LONGEST = 100
"""Characters of the longest pattern, and of the longest tag that is matched with one."""
_SECONDS = 1.0
"""Time to match one tag with a regular expression, which somebody may have written so that it takes for ever."""
_NIGHTLY = 50
"""How many tags of another kind a project may have for each of its plain versions."""
_SECONDS_FOR_ALL = 10.0
"""Time to match all tags of a project; thousands take a tenth of a second."""
# Counts such as `{999}` take memory, and extensions such as recursion take time, before the first tag is matched.
_UNUSUAL = re.compile(r"\{|\(\?(?!P<|:)")
# Versions are digits that a tag may also join with `_` or `-`; OpenSSH writes a later release of the same version as `P2`.
_JOINED = re.compile(r"(?<=\d)[_-](?=\d)")
_PATCH_LEVEL = re.compile(r"[._-]?p(?=\d)", re.IGNORECASE)
# tmux's 3.3a, OpenSSL's 1.1.1w and tzdata's 2024b follow 3.3, 1.1.1 and 2024a. Python's packaging would read 3.3a as an alpha release.
# One number with a letter is not a version: b45x.
_LETTER = re.compile(r"^(v?\d{4}|.{1,90}[._-]\d{1,9})(z?)([a-z])$")
# A project's name may hold digits: `bzip2-1.0.8`, `log4j-2.17.0`.
_NAMED = re.compile(r"([^.]{0,60}?[A-Za-z]{2}\d[A-Za-z0-9]{0,20}[-_/])v?\d{1,9}[._]\d")


@dataclass(frozen=True, slots=True)
class Releases:
    """A rule for release tags: the expression that a whole tag has to match; its group `version` is the version."""

    expression: str
    star: tuple[str, str] | None = None
    """The text before and after the version, if the rule is a glob."""

    @property
    def pattern(self) -> str:
        """The rule as `pins.toml` writes it."""
        return self.expression if self.star is None else "*".join(self.star)

    def version(self, tag: str) -> "Version | None":
        """Return the version that a tag names; None for any other tag.

        Raises:
            StackError: The expression takes too long.

        """
        if len(tag) > _LONGEST:
            return None
        try:
            found = _compiled(self.expression).fullmatch(tag, timeout=_SECONDS)
        except TimeoutError as slow:
            raise _bad(f"takes longer than a second for the tag {tag}") from slow
        return parsed(found["version"]) if found else None

    def tag_of(self, version: str) -> str | None:
        """Return the tag of a version; None if the rule is a regular expression, which cannot be turned around."""
        return None if self.star is None else f"{self.star[0]}{version}{self.star[1]}"

    def ordered(self, tags: Iterable[str], *, early: bool = False) -> list[str]:
        """Return the release tags, oldest first; pre-releases only if `early`.

        Raises:
            StackError: The expression takes too long.

        """
        end = time.monotonic() + _SECONDS_FOR_ALL
        known: dict[str, Version] = {}
        for tag in tags:
            found = self.version(tag)
            if found is not None and (early or not found.is_prerelease):
                known[tag] = found
            if time.monotonic() > end:
                raise _bad(f"takes longer than {_SECONDS_FOR_ALL:.0f} seconds for the tags of one project")
        return sorted(known, key=lambda tag: (known[tag], tag))

    def between(self, tags: Iterable[str], low: str, high: str) -> list[str]:
        """Return the release tags between two tags, without these, oldest first.

        Pre-releases are left out, unless one of the two is a pre-release itself. Empty if one of the two is not a release.
        """
        first, last = self.version(low), self.version(high)
        if first is None or last is None:
            return []
        among = self.ordered(tags, early=first.is_prerelease or last.is_prerelease)
        return [tag for tag in among if first < (self.version(tag) or first) < last]


@cache
def _compiled(expression: str) -> "regex.Pattern[str]":
    import regex  # noqa: PLC0415  (unlike `re`, it can give up; most commands compare no tags)

    try:
        return regex.compile(expression)
    except (regex.error, OverflowError, RecursionError) as error:
        raise _bad(f"is not a regular expression: {error}") from error


@cache
def of(pattern: str | None, tag: str | None = None) -> Releases:
    """Return the rule of a pattern; without one, the rule that follows from the pinned tag, by default `v*` and `*`.

    Raises:
        StackError: The pattern is neither a glob with one star nor a regular expression with a group `version`.

    """
    if pattern is None:
        return _followed(tag)
    if len(pattern) > _LONGEST:
        raise _bad(f"has more than {_LONGEST} characters")
    if pattern.count("*") == 1 and not set(pattern) & set("()[]\\^$|+?{}"):
        return _glob(*pattern.split("*"))
    if _UNUSUAL.search(pattern):
        raise _bad("has a { or an extension other than (?:…) and (?P<…>…)")
    if "version" not in _compiled(pattern).groupindex:
        raise _bad("has no group named version")
    return Releases(pattern)


def likely(tags: Iterable[str]) -> Releases | None:
    """Return the rule that most tags of a project follow; None if no tag names a version.

    Versions without a prefix other than `v` count before others, since there may be a nightly tag for every day of a release. If
    two rules hold equally often, the one with the shorter prefix counts.
    """
    counts: dict[Releases, int] = {}
    for tag in tags:
        rule = of(None, tag) if len(tag) <= _LONGEST else None
        if rule is not None and rule.version(tag) is not None:
            rule = of(None) if rule.expression == of(None).expression else rule
            counts[rule] = counts.get(rule, 0) + 1
    plain = of(None)
    if counts.get(plain, 0) * _NIGHTLY >= max(counts.values(), default=1):
        return plain
    return max(counts, key=lambda rule: (counts[rule], -len(rule.pattern)), default=None)


def parsed(text: str) -> "Version | None":
    """Return a version written in any of the usual ways: `1.27.1`, `8_5_0`, `9_8_P1`, `3.3a`, `2024-01-31`; None if it is none."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  (reading the pins does without)

    if not re.match(r"v?\d", text):
        return None
    text = _LETTER.sub(lambda part: f"{part[1]}.post{len(part[2]) * 26 + ord(part[3]) - ord('a') + 1}", text)
    plain = _PATCH_LEVEL.sub(".post", _JOINED.sub(".", text))
    for candidate in (text, plain, plain.replace("_", ".")):
        try:
            return Version(candidate)
        except InvalidVersion:
            continue
    return None


def _followed(tag: str | None) -> Releases:
    digit = re.search(r"\d", tag) if tag is not None else None
    if tag is None or digit is None or tag[: digit.start()] in ("", "v"):
        return Releases(r"v?(?P<version>\d.*)", ("v" if tag is None or not tag[:1].isdigit() else "", ""))
    named = _NAMED.match(tag)
    return _glob(tag[: digit.start()] if named is None else named[1] + "v" * tag.startswith(named[1] + "v"), "")


def _glob(before: str, after: str) -> Releases:
    # A version begins with a digit: `v*` is not meant to take `vendor`.
    return Releases(rf"{re.escape(before)}(?P<version>\d.*){re.escape(after)}", (before, after))


def _bad(problem: str) -> StackError:
    return StackError(problem, "write it like release-*, or as a regular expression with a group (?P<version>…)")
