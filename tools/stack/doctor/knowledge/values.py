# SPDX-License-Identifier: Apache-2.0
"""Compare values by a rule's conditions: texts by globs, numbers with units, and versions."""

import re
from collections.abc import Callable, Mapping

from stack.doctor.knowledge.rule import Condition, is_like

_NUMBER = re.compile(r"([-+]?\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]i?)?B?")
_WHOLE = re.compile(r"[0-9]{1,9}")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_TOKENS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([kKmMgG]?)")
_TOKEN_UNITS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
}


def number(text: str) -> float | None:
    """Read a number with its unit: `64M`, `3 GiB`, `0.9`, `unlimited`; None if it is not a number."""
    if text.strip().lower() in ("unlimited", "infinity", "max", "-1"):
        return float("inf")
    match = _NUMBER.fullmatch(text.strip())
    return float(match[1]) * _UNITS[match[2] or ""] if match is not None else None


def whole(text: str | None) -> int | None:
    """Read a whole number of up to nine ASCII digits; None if it is not one. Python's int() refuses more digits than isdigit() knows."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None


def tokens(text: str | None) -> int | None:
    """Read a number of tokens as vLLM does: `8192`, `32k` for 32 * 1000, `32K` for 32 * 1024 (human_readable_int of its arg_utils.py)."""
    match = _TOKENS.fullmatch(text or "")
    return int(float(match[1]) * _TOKEN_UNITS[match[2] or ""]) if match is not None else None


def holds(condition: Condition, given: Mapping[str, str]) -> bool:
    """Tell whether a condition holds; one on a value that is not known does not."""
    value = given.get(condition.name)
    if value is None:
        return False
    if not condition.sign:
        return True
    if condition.sign in ("=", "!="):
        return is_like(value, condition.value) is (condition.sign == "=")
    left, right = number(value), number(given.get(condition.value, condition.value))
    return left is not None and right is not None and _SIGNS[condition.sign](left, right)
