# SPDX-License-Identifier: Apache-2.0
"""Read single values of a forge's answer. Each function raises a ValueError or TypeError if the value is of another type."""


def text(value: object) -> str:
    """Return a text that may be empty."""
    if not isinstance(value, str):
        raise TypeError
    return value


def filled(value: object) -> str:
    """Return a text that is not empty."""
    if not text(value):
        raise ValueError
    return text(value)


def word(value: object) -> str:
    """Return a name, branch or commit that is printable and without blanks."""
    found = filled(value)
    if not found.isprintable() or " " in found:
        raise ValueError
    return found


def count(value: object) -> int:
    """Return a number that is not negative."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError
    return value


def number(value: object) -> int:
    """Return the number of an issue, which is positive."""
    found = count(value)
    if not found:
        raise ValueError
    return found


def address(value: object) -> str:
    """Return an address that is safe to write into `series.toml` and to open in a browser."""
    found = word(value)
    if not found.startswith(("https://", "http://")):
        raise ValueError
    return found
