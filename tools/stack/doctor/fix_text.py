# SPDX-License-Identifier: Apache-2.0
"""Apply corrections to the lines of a file: flags and variables in shells, lists, and YAML."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from stack.doctor import fix_lists
from stack.doctor.finding import KEPT, Edit, Found
from stack.doctor.fix_lists import SWITCH

_WORD = r"(?:'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"|[^\s'\"\\|&;]+)"
"""A word of a shell."""
_ITEM = r"(?:'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"|[^\s'\"\\,\]]+)"
"""A word in a list of YAML without quotes."""
_EMPTY = re.compile(r"\s*(?:[-\\]|export|ENV|Environment=|declare|-e|--env)?\s*\\?\s*")
_RECIPE = re.compile(r"^recipe_version:\s*['\"]?1\b|^defaults:", re.MULTILINE)
_BUSY = re.compile(r"&&|\|\||;|\||\bvllm\s+serve\b|\bif\b")


@dataclass(slots=True)
class _Text:
    """The lines of a file while it is corrected; None for a line that is gone.

    `recipe`: whether it is a recipe of the Spark community; `doubled`: whether braces are written twice in it.
    """

    lines: list[str | None]
    recipe: bool
    doubled: bool
    added: set[str] = field(default_factory=set)


def once(text: str, findings: Sequence[Found], before: str) -> tuple[str, list[str]]:
    """Apply the edits of findings; return the text, and the reason for each that changed something."""
    recipe = _RECIPE.search(text) is not None
    made = _Text([*text.split("\n")], recipe, recipe and 'recipe_version: "2"' not in text)
    ordered = sorted(findings, key=lambda each: each.line or 0)
    changed = [
        sum(_apply(made, edit) for edit in found.edits if not edit.new.startswith(KEPT)) > 0  # each is applied
        for found in ordered
    ]
    # Edits that add come last: what they add may be there by then.
    adds: list[list[str]] = [[] for _ in ordered]
    for place, found in enumerate(ordered):
        for edit in found.edits:
            name = edit.new[1:].split()[0] if edit.new.startswith(KEPT) else ""
            if name in made.added:
                changed[place] = True
            elif name and not any(line and _has(line, name) for line in made.lines) and _apply(made, edit):
                changed[place] = True
                adds[place].append(plain(edit.new.removeprefix(KEPT).strip()))
    reasons = [
        f"{before.format(line=found.line)}{plain(found.what)}{_added(added)}"
        for found, mends, added in zip(ordered, changed, adds, strict=True)
        if mends
    ]
    return "\n".join(_joined(made.lines)), reasons


def _added(flags: Sequence[str]) -> str:
    """Say which flags were added, mostly at the end of the command: their lines have no reason of their own."""
    return f" (added to the command: {', '.join(flags)})" if flags else ""


def _has(line: str, name: str) -> bool:
    """Tell whether a line has a flag, also at its end or with a value behind an equals sign."""
    return re.search(rf"(?<![\w-]){re.escape(name.partition('=')[0])}(?![\w-])", line) is not None


def plain(text: str) -> str:
    """Return a text with spaces in place of control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _apply(text: _Text, edit: Edit) -> bool:
    """Apply an edit to its line, or to the next ones if the line only begins the command.

    An edit whose value is not plain is left to a person.
    """
    lines = text.lines
    if not edit.is_plain:
        return False
    for place in range(edit.line - 1, min(edit.line + 2, len(lines))):
        line = lines[place]
        if line is None:
            continue
        if not edit.old:
            if _BUSY.search(line):
                return False
            lines[place] = None
            return True
        if edit.old.startswith("-") and fix_lists.change(lines, place, edit):
            text.added.add(edit.new.lstrip(f"{KEPT} ").partition(" ")[0])
            return True
        made = _flag(text, line, edit) if edit.old.startswith("-") else _variable(lines, place, edit)
        if made is not None and made != line:
            lines[place] = None if _EMPTY.fullmatch(made) else made
            text.added.add(edit.new.lstrip(f"{KEPT} ").partition(" ")[0])
            return True
    return False


def _flag(text: _Text, line: str, edit: Edit) -> str | None:
    """Return a line with a flag replaced: in a list with quotes, as an item of its own, or as words of a shell."""
    name = fix_lists.name_pattern(edit.old)
    item = "" if SWITCH.fullmatch(edit.old) else rf"(?:\s*,\s*{_quoted('value')})?"
    listed = re.compile(rf"(['\"]){name}(?:=[^'\"]*)?\1{item}(?P<comma>\s*,\s*)?")
    if (match := listed.search(line)) is not None:
        return _in_list(line, match, edit)
    word = _ITEM if re.search(rf"[\[,]\s*{name}(?![\w-])", line) else _WORD
    value = "" if SWITCH.fullmatch(edit.old) else rf"(?:[ \t]+(?!-){word})?"
    plain = re.compile(rf"(?<![\w-]){name}(?:={word}|(?![\w-]){value})(?![\w-])")
    match = plain.search(line)
    if match is None:
        return _default(line, edit) if text.recipe else None
    before, rest = line[: match.start()], line[match.end() :]
    if not edit.new:
        return f"{before.rstrip(' ') if before.strip() else before} {rest.lstrip(' ')}".rstrip(" ")
    added = _shell_words(edit.new.removeprefix(KEPT).strip(), doubled=text.doubled)
    return f"{before}{match[0]} {added}{rest}" if edit.new.startswith(KEPT) else f"{before}{added}{rest}"


def _default(line: str, edit: Edit) -> str | None:
    """Return a line of a recipe's defaults, whose names are flags with underscores, with a flag replaced or taken out."""
    match = re.match(rf"^(\s+)(['\"]?){re.escape(edit.old.removeprefix('--').replace('-', '_'))}\2(\s*:\s*)\S", line)
    if match is None or edit.new.startswith(KEPT):
        return None
    name, _, value = edit.new.partition(" ")
    return f"{match[1]}{name.removeprefix('--').replace('-', '_')}{match[3]}{value or 'true'}" if edit.new else ""


def _quoted(name: str) -> str:
    return rf"(?P<{name}>'(?!-)[^'\n]*'|\"(?!-)(?:\\.|[^\"\\\n])*\")"


def _in_list(line: str, match: "re.Match[str]", edit: Edit) -> str:
    """Return a line with a flag of a quoted list replaced; a replacement has its value as an item of its own."""
    comma = match["comma"] or ""
    words = edit.new.removeprefix(KEPT).strip().split(" ", 1) if edit.new else []
    items = ", ".join(json.dumps(word) for word in words)
    if edit.new.startswith(KEPT):
        old = line[match.start() : match.end() - len(comma)]
        return f"{line[: match.start()]}{old}, {items}{comma}{line[match.end() :]}"
    made = f"{line[: match.start()]}{items}{comma if items else ''}{line[match.end() :]}"
    return re.sub(r",\s*\]", "]", made)


def _shell_words(text: str, *, doubled: bool) -> str:
    """Return a flag and its value as words of a shell: JSON is quoted, and has doubled braces in a recipe."""
    name, _, value = text.partition(" ")
    if "{" not in value and '"' not in value:
        return text
    return f"{name} '{value.replace('{', '{{').replace('}', '}}') if doubled else value}'"


def _variable(lines: list[str | None], place: int, edit: Edit) -> str | None:
    """Return a line with a variable replaced or taken out."""
    line = lines[place] or ""
    name, value = re.escape(edit.old), edit.new.partition("=")[2]
    if re.search(rf"\bname\s*:\s*['\"]?{name}\b", line):
        return _pod_variable(lines, place, edit)
    if match := re.match(rf"^(\s*['\"]?){name}(['\"]?\s*:\s*).*$", line):
        return f"{match[1]}{edit.new.partition('=')[0]}{match[2]}{json.dumps(value)}" if edit.new else ""
    if match := re.match(rf"^(\s*-\s+['\"]?){name}=[^'\"\n]*(['\"]?\s*)$", line):
        return f"{match[1]}{edit.new}{match[2]}" if edit.new else ""
    word = re.compile(rf"((?:-e|--env)[ =])?(?<![\w-])(['\"]?){name}=(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"\\;]*)\2(?=[\s\\;]|$)")
    match = word.search(line)
    if match is None:
        return None
    new = f"{match[1] or ''}{match[2]}{edit.new}{match[2]}" if edit.new else ""
    rest = line[match.end() :]
    return f"{line[: match.start()]}{new}{rest if new else rest.lstrip(' ')}"


def _pod_variable(lines: list[str | None], place: int, edit: Edit) -> str:
    """Return the line of a variable in Kubernetes' form, which has one line, or a second one for its value."""
    line = lines[place] or ""
    following = lines[place + 1] if place + 1 < len(lines) else None
    has_second = following is not None and re.match(r"\s*value\s*:", following) is not None and "value" not in line
    value = json.dumps(edit.new.partition("=")[2])
    if not edit.new:
        if has_second:
            lines[place + 1] = None
        return ""
    if has_second:
        lines[place + 1] = re.sub(r"(value\s*:\s*).*", rf"\g<1>{value}", following or "")
        return line
    return re.sub(r"(value\s*:\s*)['\"]?[^'\"},\n]*['\"]?", rf"\g<1>{value}", line)


def _joined(lines: Sequence[str | None]) -> list[str]:
    """Return the lines that are left: a command whose last lines are gone ends, and a key of YAML that has lost all goes, too."""
    kept = list[str]()
    for place, line in enumerate(lines):
        if line is not None:
            kept.append(line)
            continue
        following = next((each for each in lines[place + 1 :] if each is not None), "")
        if kept and kept[-1].rstrip().endswith("\\") and (not following.strip() or not following[:1].isspace()):
            kept[-1] = kept[-1].rstrip()[:-1].rstrip()
        if (
            kept
            and re.fullmatch(r"\s*(?:- )?[\w-]+:\s*", kept[-1])
            and _indent(following) <= _indent(kept[-1])
            and not _is_item(following, kept[-1])
        ):
            kept.pop()
    return kept


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_item(line: str, key: str) -> bool:
    """Tell whether a line is an item of a key's list, which may have the key's own indentation."""
    return line.lstrip().startswith("- ") and _indent(line) >= _indent(key)
