# SPDX-License-Identifier: Apache-2.0
"""Write a script corrected beside it, with the reason for each line."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from stack.base import files
from stack.base.errors import StackError
from stack.doctor import script
from stack.doctor.finding import Edit, Found

_VALUE = r"(?:'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"|[^\s'\"\\|&;,\])}]+)"
_KEPT = "\0"
"""Stands in a new text for the old one."""
_EMPTY = re.compile(r"\s*(?:[-\\]|export|ENV|Environment=|declare|-e|--env)?\s*\\?\s*")


def write(file: Path, findings: Iterable[Found]) -> Path | None:
    """Write the corrected file beside a script; return its path, None if there is nothing to correct.

    Raises:
        StackError: a file of that name is there already, or cannot be written.

    """
    mended = [found for found in findings if found.edits]
    if not mended:
        return None
    text = corrected(script.text_of(file), mended)
    target = file.with_name(f"{file.stem}.fixed{file.suffix}" if file.suffix else f"{file.name}.fixed")
    try:
        with files.opened(target.parent) as folder:
            if folder.exists(target.name):
                raise StackError(f"{target} is there already", "move it, then run the command again")
            folder.write(target.name, text.encode())
    except OSError as failed:
        raise StackError(f"{target} cannot be written ({failed.strerror})", "check the folder's rights") from failed
    return target


def corrected(text: str, findings: Sequence[Found]) -> str:
    """Return a script with the edits of findings, and a comment at its top that gives the reason for each line."""
    lines: list[str | None] = [*text.split("\n")]
    reasons = list[str]()
    for found in sorted(findings, key=lambda each: each.line or 0):
        changed = [_apply(lines, edit) for edit in found.edits]
        if any(changed):
            reasons.append(f"line {found.line}: {_plain(found.what)}")
    kept = _joined(lines)
    place = 1 if kept and kept[0].startswith("#!") else 0
    head = ["# Corrected by `stack doctor --fix`; lines are those of the original:", *(f"#   {reason}" for reason in reasons)]
    return "\n".join((*kept[:place], *head, *kept[place:]))


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _apply(lines: list[str | None], edit: Edit) -> bool:
    """Apply an edit to its line, or to the next ones if the line only begins the command."""
    for place in range(edit.line - 1, min(edit.line + 2, len(lines))):
        line = lines[place]
        if line is None:
            continue
        made = _flag(line, edit) if edit.old.startswith("-") else _variable(lines, place, edit)
        if made is not None and made != line:
            lines[place] = None if _EMPTY.fullmatch(made) else made
            return True
    return False


def _flag(line: str, edit: Edit) -> str | None:
    """Return a line with a flag replaced, in a shell's form or as items of a list."""
    name = re.escape(edit.old).replace(r"\-", "[-_]") if edit.old.startswith("--") else re.escape(edit.old)
    listed = re.compile(rf"(['\"]){name}(?:=[^'\"]*)?\1(?:\s*,\s*(['\"])(?!-)[^'\"\n]*\2)?(\s*,\s*)?")
    item = re.compile(rf"^(\s*-\s+)(['\"]?){name}(?:=[^\n]*)?\2\s*$")
    plain = re.compile(rf"(?<![\w-]){name}(?:=(?:{_VALUE})|(?![\w-])(?:[ \t]+(?!-){_VALUE})?)?(?![\w-])")
    if item.match(line) and not edit.new:
        return ""
    if match := listed.search(line):
        words = edit.new.replace(_KEPT, edit.old).split(" ", 1) if edit.new else []
        if edit.new.startswith(_KEPT):
            return f'{line[: match.end()].rstrip(", ")}, "{edit.new[2:]}"{", " if match[3] else ""}{line[match.end() :]}'
        new = ", ".join(f"{match[1]}{word}{match[1]}" for word in words)
        return f"{line[: match.start()]}{new}{(match[3] or '') if new else ''}{line[match.end() :]}".replace(", ]", "]")
    if match := plain.search(line):
        new = edit.new.replace(_KEPT, match[0])
        rest = line[match.end() :]
        return (
            f"{line[: match.start()]}{new}{rest}"
            if new
            else f"{line[: match.start()].rstrip(' ') or ''} {rest.lstrip(' ')}".rstrip(" ")
        )
    return None


def _variable(lines: list[str | None], place: int, edit: Edit) -> str | None:
    """Return a line with a variable replaced or taken out."""
    line = lines[place] or ""
    name = re.escape(edit.old)
    value = edit.new.partition("=")[2]
    if re.search(rf"\bname\s*:\s*['\"]?{name}\b", line):
        # Kubernetes: an item of one line, or of two.
        if not edit.new:
            following = lines[place + 1] if place + 1 < len(lines) else None
            if following is not None and re.match(r"\s*value\s*:", following) and "value" not in line:
                lines[place + 1] = None
            return ""
        return re.sub(r"(value\s*:\s*)['\"]?[^'\"},\n]*['\"]?", rf'\g<1>"{value}"', line)
    mapping = re.compile(rf"^(\s*['\"]?){name}(['\"]?\s*:\s*).*$")
    if match := mapping.match(line):
        return f'{match[1]}{edit.new.partition("=")[0]}{match[2]}"{value}"' if edit.new else ""
    listed = re.compile(rf"^(\s*-\s+['\"]?){name}=[^'\"\n]*(['\"]?\s*)$")
    if match := listed.match(line):
        return f"{match[1]}{edit.new}{match[2]}" if edit.new else ""
    word = re.compile(rf"((?:-e|--env)[ =])?(?<![\w-])(['\"]?){name}=(?:{_VALUE})?\2(?=[\s\\;]|$)")
    if match := word.search(line):
        new = f"{match[1] or ''}{match[2]}{edit.new}{match[2]}" if edit.new else ""
        return (
            f"{line[: match.start()]}{new}{line[match.end() :]}"
            if new
            else f"{line[: match.start()]}{line[match.end() :].lstrip(' ')}"
        )
    return None


def _joined(lines: Sequence[str | None]) -> list[str]:
    """Return the lines that are left; a line before one that is gone does not go on into the next command."""
    kept = list[str]()
    for place, line in enumerate(lines):
        if line is not None:
            kept.append(line)
            continue
        following = next((each for each in lines[place + 1 :] if each is not None), "")
        ends = not following.strip() or not following[:1].isspace()
        if ends and kept and kept[-1].rstrip().endswith("\\"):
            kept[-1] = kept[-1].rstrip()[:-1].rstrip()
    return kept
