# SPDX-License-Identifier: Apache-2.0
"""Random trees and random changes, written by git itself, to hold our own tree work against."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch, parse
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Objects

FILE, PROGRAM, LINK = "100644", "100755", "120000"
FORMAT = ("--full-index", "--no-stat", "--no-signature", "--zero-commit")

Tree = dict[str, tuple[str, bytes]]
"""Path -> mode and content."""

# Every example starts git a few times: making a failing one smaller would take minutes, and they are small.
PROPERTY = settings(
    deadline=None,
    max_examples=int(os.environ.get("STACK_TEST_EXAMPLES", "30")),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

# Some of them cannot stand together (`d` and `d/a`); some are hard to read in a diff.
NAMES = (
    "a",
    "b",
    "c.py",
    "d",
    "d/a",
    "d/b",
    "d/e/a",
    "d/e/b",
    "f/a",
    "f b/c",
    "x b/y",
    "ü/ñandú.py",
    'q"uote',
    "tab\tname",
    "back\\slash",
)
# Lines that a parser of patches could take for something else.
LINES = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "", " ", "\tindented", "größer"),
    *(
        "carriage\r",
        "\r",
        "--- a/x",
        "+++ b/x",
        "@@ -1,2 +1,2 @@",
        "diff --git a/x b/x",
        "-- ",
        "---",
        "\\ No newline at end of file",
        "From 0",
    ),
)
BINARIES = (b"\0", b"\0\1\2binary\0" * 2, bytes(range(9)) * 4)
SUBJECTS = (
    "Change it",
    "[core] Ändere es",
    "A subject that is so long that git has to fold it in the header of the mail " * 2,
    "x: y",
)
BODIES = ("", "Why, in a line.\n", "Why.\n\n  indented\n\nSigned-off-by: Jörg <j@x>\n", "Two\nlines, größer.\n\n- a list\n")


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.sampled_from(LINES), max_size=14))
    text = "\n".join(lines) + draw(st.sampled_from(("\n", "\n", ""))) if lines else ""
    encodings = ("utf-8", "utf-8", "utf-8", "latin-1")
    return draw(st.sampled_from((*(text.encode(name) for name in encodings), draw(st.sampled_from(BINARIES)))))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes]:
    mode = draw(st.sampled_from((FILE, FILE, FILE, PROGRAM, LINK)))
    return (mode, draw(st.sampled_from((b"a", b"d/a", b"../out")))) if mode == LINK else (mode, draw(contents()))


def possible(tree: Mapping[str, tuple[str, bytes]]) -> Tree:
    """The tree without the files whose path is a folder of another one."""
    return {path: file for path, file in tree.items() if not any(other.startswith(f"{path}/") for other in tree)}


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    return possible(draw(st.dictionaries(st.sampled_from(NAMES), files(), min_size=1, max_size=9)))


@st.composite
def changed_lines(draw: st.DrawFn, content: bytes) -> bytes:
    lines = content.split(b"\n")
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines)))
        new = [line.encode() for line in draw(st.lists(st.sampled_from(LINES), max_size=2))]
        lines[place : place + draw(st.integers(0, 2))] = new
    return b"\n".join(lines)


@st.composite
def changed(draw: st.DrawFn, before: Tree, *, folders: bool = False, most: int = 4) -> Tree:
    """A tree after some changes; with `folders` whole folders may move, too."""
    after = dict(before)
    kinds = ["edit", "edit", "edit", "add", "delete", "move", "move and edit", "mode", "replace", *(["move folder"] * folders)]
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(kinds))
        path = draw(st.sampled_from(sorted(after))) if after else None
        if kind == "add" or path is None:
            after[draw(st.sampled_from(NAMES))] = draw(files())
            continue
        mode, content = after[path]
        target = draw(st.sampled_from((*NAMES, "new/a", "new/b")))
        if kind == "edit" and mode != LINK:
            after[path] = mode, draw(changed_lines(content))
        elif kind == "delete":
            del after[path]
        elif kind.startswith("move") and kind != "move folder":
            del after[path]
            after[target] = mode, draw(changed_lines(content)) if "edit" in kind and mode != LINK else content
        elif kind == "mode" and mode != LINK:
            after[path] = FILE if mode == PROGRAM else PROGRAM, content
        elif kind == "replace":
            after[path] = draw(files())
        elif kind == "move folder" and "/" in path:
            folder, to = path.rpartition("/")[0] + "/", draw(st.sampled_from(("moved/", "f/", "d/e/")))
            after = {to + name.removeprefix(folder) if name.startswith(folder) else name: file for name, file in after.items()}
    # Of a link's place `git apply` makes no folder.
    links = tuple(f"{path}/" for path, (mode, _) in before.items() if mode == LINK)
    return possible({path: file for path, file in after.items() if not path.startswith(links)})


@dataclass
class Scratch:
    """A bare repository that git's fast-import writes into."""

    repository: Path
    objects: Objects

    def git(self, *args: str, accept: tuple[int, ...] = (0,)) -> bytes:
        place = {"GIT_DIR": str(self.objects.repository)}  # with what was written through `objects`
        return git.run(["-c", "core.quotePath=false", *args], env=place, accept=accept).stdout

    def commits(self, *items: tuple[Tree, int | None, str]) -> list[CommitId]:
        """One commit an item: its tree, the number of the item that is its parent, its message."""
        stream = b""
        for mark, (tree, parent, message) in enumerate(items, 1):
            text = message.encode()
            stream += b"commit refs/heads/x%d\nmark :%d\n" % (mark, mark)
            stream += b'author J\xc3\xb6rg "x", Y <j@x> %d +0130\ncommitter C <c@x> 9 +0000\n' % (1_700_000_000 + mark)
            stream += b"data %d\n%s\n" % (len(text), text)
            stream += b"from :%d\n" % (parent + 1) if parent is not None else b""
            stream += b"deleteall\n"
            for path, (mode, content) in tree.items():
                quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
                stream += b'M %s inline "%s"\ndata %d\n%s\n' % (mode.encode(), quoted.encode(), len(content), content)
        marks = self.repository / "marks"
        git.run(
            ["fast-import", "--quiet", "--force", f"--export-marks={marks}"],
            stdin=stream,
            env={"GIT_DIR": str(self.repository)},
        )
        found = dict(line.split(" ") for line in marks.read_text().splitlines())
        return [CommitId(found[f":{mark}"]) for mark in range(1, len(items) + 1)]

    def tree(self, commit: str) -> TreeId:
        return TreeId(self.git("rev-parse", f"{commit}^{{tree}}").decode().strip())

    def format_patch(self, base: str, tip: str, *settings: str) -> list[bytes]:
        """The patch files of a chain, as git writes them."""
        with tempfile.TemporaryDirectory(dir=self.repository) as folder:
            self.git(*settings, "format-patch", "--quiet", *FORMAT, "--no-numbered", "-o", folder, f"{base}..{tip}")
            return [file.read_bytes() for file in sorted(Path(folder).iterdir())]


def patch_of(raw: bytes, file: str = "up/change.patch", series: str = "one") -> Patch:
    return parse(raw, PatchRef(series, file.partition("/")[0], file), name=file)
