# SPDX-License-Identifier: Apache-2.0
"""Parts of a description that are made anew, between marks; what a person wrote is never touched.

A mark names the part and the hash of what was made: text that no longer has it was edited, and stays. So does all outside of marks.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

_BLOCK = re.compile(
    r"<!-- stack:(?P<name>[a-z]+) (?P<hash>[0-9a-f]{12}) -->\n(?P<text>.*?)\n<!-- /stack:(?P=name) -->\n?", re.DOTALL
)
_MARK = re.compile(r"<!-- /?stack:[a-z]+(?: [0-9a-f]{12})? -->\n?")


@dataclass(frozen=True, slots=True)
class Renewed:
    """A text with its parts made anew, and those that were left as they are: edited by a person, or taken out by one."""

    text: str
    edited: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def block(name: str, text: str) -> str:
    """A part with its marks."""
    text = text.strip("\n")
    return f"<!-- stack:{name} {_hash(text)} -->\n{text}\n<!-- /stack:{name} -->\n"


def renewed(text: str, parts: Mapping[str, str]) -> Renewed:
    """A text with other parts, where nobody has edited them."""
    edited, found = [], set()

    def replace(one: re.Match[str]) -> str:
        found.add(one["name"])
        if one["name"] not in parts:
            return one[0]
        if _hash(one["text"]) != one["hash"]:
            if one["text"].strip() != parts[one["name"]].strip():
                edited.append(one["name"])
            return one[0]
        return block(one["name"], parts[one["name"]])

    made = _BLOCK.sub(replace, text)
    return Renewed(made, tuple(edited), tuple(name for name in parts if name not in found))


def intact(text: str, name: str) -> bool:
    """Whether a part stands in a text as it was made."""
    return any(one["name"] == name and _hash(one["text"]) == one["hash"] for one in _BLOCK.finditer(text))


def bare(text: str) -> str:
    """A text without marks."""
    return _MARK.sub("", text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
