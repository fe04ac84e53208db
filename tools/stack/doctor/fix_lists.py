# SPDX-License-Identifier: Apache-2.0
"""Correct flags in lists with one item on a line: block lists of YAML, and quoted lists, where a value has the next line."""

import json
import re
from collections.abc import Sequence

from stack.doctor.finding import KEPT, Edit

Lines = list[str | None]
"""The lines of a file; None for one that is gone. An item that was added stands behind a line feed in the line before it."""
SWITCH = re.compile(r"--(?:enforce-eager|trust-remote-code|async-scheduling|headless|(?:no|enable|disable)-[\w-]+)")
"""Flags without a value: the word behind one is another argument, such as the model."""
_BLOCK = re.compile(r"(?P<before>\s*-\s+)(?P<text>'[^'\n]*'|\"[^\"\\\n]*\"|[^\s'\"#>|&*!][^\s#]*)(?P<after>\s*(?:\s#.*)?)")
_QUOTED = re.compile(r"(?P<before>\s*)(?P<text>'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\")(?P<after>\s*,?\s*\]?.*)")
_WORD = re.compile(r"[A-Za-z][\w./+-]*")
_OTHER_TYPES = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def name_pattern(flag: str) -> str:
    """Return a pattern for a flag's name: a long one may have underscores."""
    return re.escape(flag).replace(r"\-", "[-_]") if flag.startswith("--") else re.escape(flag)


def change(lines: Lines, place: int, edit: Edit) -> bool:
    """Apply an edit to a flag whose list has one item on a line; return whether the line has such a flag."""
    line, rest = _first(lines[place])
    block = _BLOCK.fullmatch(line)
    if block is not None:
        given = _unquoted(block["text"])
        name, equals, _ = given.partition("=")
        if not re.fullmatch(name_pattern(edit.old), name):
            return False
        _change_item(lines, place, edit, block, rest, is_joined=bool(equals))
        return True
    return _change_quoted(lines, place, edit)


def _change_item(lines: Lines, place: int, edit: Edit, item: "re.Match[str]", rest: str, *, is_joined: bool) -> None:
    value_at = None if is_joined or SWITCH.fullmatch(edit.old) else _value_at(lines, place, item["before"])
    name, _, value = edit.new.removeprefix(KEPT).strip().partition(" ")
    if edit.new.startswith(KEPT):
        last = place if value_at is None else value_at
        more = [f"{item['before']}{_scalar(word)}" for word in (name, value) if word]
        lines[last] = "\n".join((lines[last] or "", *more))
        return
    value_line, value_rest = _first(lines[value_at]) if value_at is not None else ("", "")
    if not edit.new:
        if value_at is not None:
            lines[value_at] = None
        lines[place] = (rest + value_rest).removeprefix("\n") or None
        return
    if is_joined and value:
        lines[place] = f"{item['before']}{_like(item['text'], f'{name}={value}')}{item['after']}{rest}"
        return
    lines[place] = f"{item['before']}{_like(item['text'], name)}{item['after']}{rest}"
    if value_at is None:
        if value:
            lines[place] = f"{item['before']}{_like(item['text'], name)}{item['after']}\n{item['before']}{_scalar(value)}{rest}"
    elif value:
        old = _BLOCK.fullmatch(value_line)
        assert old is not None
        lines[value_at] = f"{old['before']}{_like(old['text'], value)}{old['after']}{value_rest}"
    else:
        lines[value_at] = value_rest.removeprefix("\n") or None


def _value_at(lines: Sequence[str | None], place: int, before: str) -> int | None:
    """Return the line of the item that is a flag's value; None if it has none. Comments may stand between the two."""
    for at in range(place + 1, len(lines)):
        line, _ = _first(lines[at])
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        item = _BLOCK.fullmatch(line)
        is_value = (
            item is not None and _indent(item["before"]) == _indent(before) and not _unquoted(item["text"]).startswith("-")
        )
        return at if is_value else None
    return None


def _change_quoted(lines: Lines, place: int, edit: Edit) -> bool:
    """Change a flag that is the last word of its line in a quoted list, with its value at the start of the next line."""
    line = lines[place] or ""
    flag = re.fullmatch(rf"(?P<before>.*?)(?P<quote>['\"]){name_pattern(edit.old)}(?P=quote)\s*,\s*(?P<slash>\\?)", line)
    following = next((at for at in range(place + 1, len(lines)) if lines[at] is not None), None)
    value = _QUOTED.fullmatch(lines[following] or "") if flag is not None and following is not None else None
    if flag is None or value is None or following is None:
        return False
    if SWITCH.fullmatch(edit.old) or _unquoted(value["text"]).startswith("-"):
        return False
    name, _, new = edit.new.removeprefix(KEPT).strip().partition(" ")
    more = ", ".join(json.dumps(word) for word in (name, new) if word)
    slash = f" {flag['slash']}" if flag["slash"] else ""
    if edit.new.startswith(KEPT):
        lines[following] = f"{value['before']}{value['text']}, {more}{value['after']}"
    elif not edit.new or not new:
        lines[place] = f"{flag['before']}{more}{',' if more else ''}".rstrip()
        lines[place] = f"{lines[place]}{slash}" if lines[place] else slash.strip()
        rest = re.sub(r"^\s*,\s*", "", value["after"])
        lines[following] = f"{value['before']}{rest}" if rest.strip(" \\") else None
        lines[place] = lines[place] or None
    else:
        lines[place] = f"{flag['before']}{json.dumps(name)},{slash}"
        lines[following] = f"{value['before']}{json.dumps(new)}{value['after']}"
    return True


def _first(line: str | None) -> tuple[str, str]:
    """Split what stands on a line from the items that were added behind it."""
    first, feed, rest = (line or "").partition("\n")
    return first, feed + rest


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in ("'", '"') else text


def _like(old: str, new: str) -> str:
    """Return a scalar in the quotes of the one that it replaces, if these suit it."""
    if old.startswith("'"):
        return f"'{new}'"  # a value of an edit has no single quotes
    return json.dumps(new) if old.startswith('"') else _scalar(new)


def _scalar(text: str) -> str:
    """Return a text as a scalar that YAML reads as that text; Kubernetes refuses a number in a list of arguments."""
    is_plain = text.startswith("--") or (_WORD.fullmatch(text) is not None and text.lower() not in _OTHER_TYPES)
    return text if is_plain else json.dumps(text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
