# SPDX-License-Identifier: Apache-2.0
"""Replace what a public report must not contain: keys, addresses, host names, users, and paths."""

import re

_KEY = r"(?:api[_-]?key|token(?!s|iz)|secret|password|passwd|authorization|credential|cookie)"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"\b(?:hf|sk|ghp|gho|ghs|glpat|xox[abp]|nvapi|github_pat)[-_][\w-]{6,200}", "<secret>"),
        (r"\bAKIA[A-Z0-9]{12,20}\b", "<secret>"),
        (r"\bBearer [\w.~+/=-]{6,400}", "Bearer <secret>"),
        (
            rf"((?:[\w-]{{0,40}}{_KEY}[\w-]{{0,20}})['\"]?\s{{0,3}}[=:]\s{{0,3}}(?:\[?['\"])?)[^\s'\",;)\]}}]{{3,400}}",
            r"\1<secret>",
        ),
        (r"\beyJ[\w-]{10,400}\.[\w-]{5,800}\.[\w-]{5,400}", "<secret>"),
        (r"\b[\w.+-]{1,64}@[\w-]{1,60}(?:\.[\w-]{1,60}){1,4}\b", "<address>"),
        (r"\b(?:[a-z]{2,10})://[^\s'\"<>)\]]{1,400}", "<url>"),
        (r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", "<mac>"),
        (r"(?<![\w.])(?!0\.0\.0\.0|127\.0\.0\.1)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d{1,5})?(?![\w.])", "<address>"),
        (r"(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}(?::?[0-9a-f]{1,4}){1,4}(?![\w:])", "<address>"),
        (r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<gpu>"),
        (r"^[\w.-]{1,63}(:\d{1,9}:\d{1,9} \[\d{1,3}\])", r"<host>\1"),
        (r"\b(host(?:name)?|node|server_name)(=|: ?)['\"]?(?!None|0\.0\.0\.0|127\.|localhost|<)[\w.-]{2,80}", r"\1\2<host>"),
        # Of an installed package the path inside it says everything.
        (r"(?:/[\w.@+~-]{1,100}){1,20}/(?:site|dist)-packages/", ".../"),
        (r"(?<![\w./<])(?:~|/[\w.@+-]{1,100})(?:/[\w.@+ -]{1,100}){0,20}/([\w.@+-]{1,100})", r"<path>/\1"),
    )
)
_LONGEST = 400


def redacted(line: str) -> str:
    """Return a line without secrets, hosts and paths; a long one is cut."""
    text = "".join(letter if letter.isprintable() else " " for letter in line[: 4 * _LONGEST])
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
