# SPDX-License-Identifier: Apache-2.0
"""Replace generated parts of a description between marks, and never touch what a person wrote.

A mark has the part's name and the hash of its text. If the text has another hash, a person has edited it, and it is kept. Text
outside of marks is always kept.
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
    """A text with its parts renewed, and the names of parts that were kept because a person edited or removed them."""

    text: str
    edited: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def block(name: str, text: str) -> str:
    """Return a part with its marks."""
    text = text.strip("\n")
    return f"<!-- stack:{name} {_hash(text)} -->\n{text}\n<!-- /stack:{name} -->\n"


def renewed(text: str, parts: Mapping[str, str]) -> Renewed:
    """Replace the parts that nobody has edited."""
    edited, found = [], set()

    def replace(match: re.Match[str]) -> str:
        found.add(match["name"])
        if match["name"] not in parts:
            return match[0]
        if _hash(match["text"]) != match["hash"]:
            if match["text"].strip() != parts[match["name"]].strip():
                edited.append(match["name"])
            return match[0]
        return block(match["name"], parts[match["name"]])

    made = _BLOCK.sub(replace, text)
    return Renewed(made, tuple(edited), tuple(name for name in parts if name not in found))


def intact(text: str, name: str) -> bool:
    """Return whether a part is in a text unchanged."""
    return any(match["name"] == name and _hash(match["text"]) == match["hash"] for match in _BLOCK.finditer(text))


def bare(text: str) -> str:
    """Return a text without the marks."""
    return _MARK.sub("", text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
