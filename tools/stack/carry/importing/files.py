# SPDX-License-Identifier: Apache-2.0
"""Read patches from files: git diffs, mails, mailboxes and plain diffs, one or several a file."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.importing import dep3, plain
from stack.carry.importing.candidate import Candidate, LeftOut, Upstreamed, storable
from stack.carry.importing.marked import unmarked
from stack.model import document, mail
from stack.model import patch as patches
from stack.model.patch import Author
from stack.model.series import PatchRef

ENDINGS = (".patch", ".diff", ".dpatch", ".mbox", ".eml", ".mail")
_MOST = 20_000
"""Upper bound of the files in a folder."""
_CONTEXT = re.compile(rb"^\*\*\* [^\n]+\n--- [^\n]+\n\*{15}", re.MULTILINE)
"""How `diff -c` begins."""
_SIGNATURE = re.compile(rb"\n-- \n[^\n]*\n*\Z")

Read = list[Candidate | LeftOut]


def listed(given: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return the files to read with the subfolder of each: files in the given order, a folder's files sorted.

    Raises:
        StackError: A path is missing, or a folder has no patch file.

    """
    found: list[tuple[Path, str]] = []
    for path in given:
        if not path.exists():
            raise StackError(f"{path} does not exist", "name patch files, a folder with them, or a git clone and a branch")
        if not path.is_dir():
            found.append((path, ""))
            continue
        inside = [file for file in sorted(path.rglob("*"))[:_MOST] if file.suffix in ENDINGS and _inside(file, path)]
        if not inside:
            raise StackError(
                f"{path} has no files {', '.join('*' + ending for ending in ENDINGS)}", "name the files one by one"
            )
        found += [(file, file.relative_to(path).parent.as_posix().removeprefix(".")) for file in inside]
    return found


def _inside(file: Path, folder: Path) -> bool:
    """Return whether a file is a file below the folder, also after following links."""
    return file.is_file() and file.resolve().is_relative_to(folder.resolve())


def read_all(given: Sequence[Path], who: Author) -> Read:
    """Read the patches of files and folders.

    Raises:
        StackError: A path is missing or too large.

    """
    return [one for path, folder in listed(given) for one in read(path, folder, who)]


def read(path: Path, folder: str, who: Author) -> Iterator[Candidate | LeftOut]:
    """Read the patches of one file; a part that holds no readable patch is left out with the reason.

    Raises:
        StackError: The file is missing or too large.

    """
    raw = document.read_bytes(path, missing="check the path", largest=patches.LARGEST, piped=True)
    parts = [part for part in mail.split(raw) if part.strip()] or [raw]
    several = sum(plain.start(part) >= 0 for part in parts) > 1
    for number, part in enumerate(parts, 1):
        name = f"{path.name}#{number}" if several else path.name
        if several and plain.start(part) < 0:
            continue  # a cover letter, or a reply
        candidate = one(part, name, path, who)
        if isinstance(candidate, Candidate):
            candidate = replace(candidate, folder=folder, file=None if several and not candidate.series else candidate.file)
        yield candidate


def one(raw: bytes, name: str, path: Path, who: Author) -> Candidate | LeftOut:
    """Read one patch: a mail as `git format-patch` writes it, or else any text with a diff below."""
    if mail.is_mail(raw):
        try:
            parsed = patches.parse(raw, PatchRef("", "", name), name=name)
        except StackError:
            pass  # a header that quilt or DEP-3 allows and git does not
        else:
            body = parsed.message.encode("utf-8", "replace").partition(b"\n\n")[2]
            upstreamed = dep3.read(raw.partition(b"\n\n")[0] + b"\n\n" + body, fallback=who).upstreamed
            message = storable(parsed.message)
            by_lines = not is_git(parsed.diff)
            found = Candidate(name, name, raw, parsed.author, message, parsed.diff, path.name, by_lines=by_lines)
            return unmarked(replace(found, upstreamed=upstreamed))
        letter = _letter(raw)
        raw_text = raw if letter is None else letter
    else:
        raw_text = raw
    begin = plain.start(raw_text)
    stem = _words(path)
    empty = Candidate(name, name, raw, who, f"{stem}\n", b"", path.name)
    if begin < 0:
        context = _CONTEXT.search(raw_text)
        return LeftOut(empty, "it is a context diff: write it with `diff -u`" if context else "it has no diff")
    header = dep3.read(raw_text[:begin], fallback=who)
    diff = _SIGNATURE.sub(b"\n", raw_text[begin:])
    return replace(
        empty,
        author=header.author or who,
        message=header.message or f"{stem}\n",
        diff=diff,
        by_lines=not is_git(diff),
        upstreamed=header.upstreamed or Upstreamed(),
    )


def is_git(diff: bytes) -> bool:
    """Tell whether a diff is of git's usual form: with the prefixes `a/` and `b/`, and with blob ids where it has hunks."""
    prefixed = all(line.startswith((b"a/", b'"a/')) for line in re.findall(rb"^diff --git (.*)$", diff, re.MULTILINE))
    ids = re.search(rb"^index [0-9a-f]{7,}\.\.", diff, re.MULTILINE) or not re.search(rb"^@@ -", diff, re.MULTILINE)
    return diff.startswith(b"diff --git ") and prefixed and bool(ids)


def _letter(raw: bytes) -> bytes | None:
    """Return a mail's header and its decoded text."""
    try:
        letter = mail.read(raw)
    except (ValueError, KeyError):
        return None
    return None if letter is None else letter.wrapping.head + letter.text


def _words(path: Path) -> str:
    """Make a subject of a file's name."""
    name = os.fsencode(path.name).decode("utf-8", "replace")
    bare = re.sub(r"\.(patch|diff|dpatch|mbox|eml|mail|txt)$", "", name, flags=re.IGNORECASE)
    return " ".join(re.sub(r"^\d+[-_.]", "", bare).replace("_", " ").replace("-", " ").split()) or "patch"
