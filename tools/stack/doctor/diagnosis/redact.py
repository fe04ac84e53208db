# SPDX-License-Identifier: Apache-2.0
"""Replace what a public report must not contain: keys, addresses, host names, users, and paths."""

import re

_KEY = r"(?:api[_-]?key|token(?!s|iz)|secret|password|passwd|authorization|credential|cookie)"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        # Of these all that follows is secret, whatever its form.
        (r"\b((?:proxy-)?authorization|(?:set-)?cookie)(['\"]?\s{0,3}[:=]\s{0,3}).{1,1600}", r"\1\2<secret>"),
        (r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.{0,1600}", "<secret>"),
        (r"^\s{0,8}[\w+/]{60,76}={0,2}\s{0,8}$", "<secret>"),
        (r"(\s(?:-u|--user)[ =])[^\s:]{1,100}:\S{1,200}", r"\1<secret>"),
        (r"\b(?:hf|sk|ghp|gho|ghs|glpat|xox[abp]|nvapi|github_pat|npm|gsk|pypi|dop_v1)[-_][\w-]{6,200}", "<secret>"),
        (r"\b(?:ya29\.|AIza)[\w-]{10,400}", "<secret>"),
        (rf"(\b\w{{0,40}}(?:access_key|{_KEY})\w{{0,20}} )(?=\S{{0,399}}\d)[\w/+=-]{{16,400}}(?!\S)", r"\1<secret>"),
        (r"\bAKIA[A-Z0-9]{12,20}\b", "<secret>"),
        (r"\bBearer [\w.~+/=-]{6,400}", "Bearer <secret>"),
        (
            rf"((?:[\w-]{{0,40}}{_KEY}[\w-]{{0,20}})['\"]?\s{{0,3}}[=:]\s{{0,3}}(?:\[?['\"])?)[^\s'\",;)\]}}]{{3,400}}",
            r"\1<secret>",
        ),
        (r"\beyJ[\w-]{10,400}\.[\w-]{5,800}\.[\w-]{5,400}", "<secret>"),
        # Before addresses: one in it would end it.
        (r"\b(?:[a-z]{2,10})://[^\s'\"<>)\]]{1,400}", "<url>"),
        (r"\b[\w.+-]{1,64}@[\w-]{1,60}(?:\.[\w-]{1,60}){1,4}\b", "<address>"),
        (r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", "<mac>"),
        (r"(?<![\w.])(?!0\.0\.0\.0|127\.0\.0\.1)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d{1,5})?(?![\w.])", "<address>"),
        (r"(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}(?::?[0-9a-f]{1,4}){1,4}(?![\w:])", "<address>"),
        (r"(?<![\w:])(?:[0-9a-f]{1,4}:){1,6}:(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,5})?(?![\w:])", "<address>"),
        (r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<gpu>"),
        (r"^[\w.-]{1,63}(:\d{1,9}:\d{1,9} \[\d{1,3}\])", r"<host>\1"),
        (r"\b(host(?:name)?|node|server_name)(=|: ?)['\"]?(?!None|0\.0\.0\.0|127\.|localhost|<)[\w.-]{2,80}", r"\1\2<host>"),
        (
            r"\b[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}\.(?:lan|local|internal|intern|corp|home|localdomain)(?:\.[\w-]{1,63}){0,3}\b",
            "<host>",
        ),
        (r"\b[a-z]:\\[^\s'\"<>|]{1,300}", "<path>"),
        # Of an installed package the path inside it says everything.
        (r"(?:/[\w.@+~-]{1,100}){1,20}/(?:site|dist)-packages/", ".../"),
        (r"(?<![\w./<])(?:~[\w-]{0,32}|/[\w.@+-]{1,100})(?:/[\w.@+ -]{1,100}){0,20}/([\w.@+-]{1,100})", r"<path>/\1"),
    )
)
_LONGEST = 400


def redacted(line: str) -> str:
    """Return a line without secrets, hosts and paths; a long one is cut."""
    text = "".join(letter if letter.isprintable() else " " for letter in line[: 4 * _LONGEST])
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
