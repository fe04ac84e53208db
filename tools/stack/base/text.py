# SPDX-License-Identifier: Apache-2.0
"""Make foreign text safe and short enough to show, and write counts."""


def printable(text: str, instead: str = "?", kept: str = "") -> str:
    """Replace every unprintable character, such as a terminal's control codes, by `instead`; keep those in `kept`."""
    return "".join(letter if letter.isprintable() or letter in kept else instead for letter in text)


def shortened(text: str, most: int) -> str:
    """Shorten text to at most `most` (5 or more) characters, keeping both ends: errors often name their cause at the end."""
    if len(text) <= most:
        return text
    first = (most - 3) // 2
    return f"{text[:first]} … {text[len(text) - (most - first - 3) :]}"


def last_line(output: str) -> str:
    """Return the last line of a program's output that is not blank, without blanks at its ends; empty if there is none."""
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")


def counted(number: int, one: str, more: str = "") -> str:
    """Return a number with its noun: `1 patch`, `2 patches`. `more` is the plural if it is not formed with -s or -es."""
    plural = more or f"{one}{'es' if one.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
    return f"{number} {one if number == 1 else plural}"
