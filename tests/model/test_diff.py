# SPDX-License-Identifier: Apache-2.0
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import unidiff
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stack.model import diff
from stack.model.diff import FileDiff, Hunk

from .factories import git

Tree = Mapping[str, tuple[int, bytes]]
"""Mode and bytes of every file of a tree."""

HEAD = "diff --git a/x b/x\nindex 1111111..2222222 100644\n--- a/x\n+++ b/x\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "line 1 of the diff: '' is not expected there"),
        ("nonsense", "line 1 of the diff: 'nonsense' is not expected there"),
        ("diff --cc x\n", "line 1 of the diff: 'diff --cc x' is not expected there"),
        ("diff --git x x\n", "line 1 of the diff: 'diff --git x x' is not expected there"),
        ("@@ -1 +1 @@\n-a\n+b\n", "line 1 of the diff: '@@ -1 +1 @@' is not expected there"),
        (f"{HEAD}@@ -1 +1 @@\n-a\n+b\n-c\n{HEAD}", "line 8 of the diff: '-c' is not expected there"),
        (f"{HEAD}@@ -1 +1 @@\n-a\n+b\n\n@@ -3 +3 @@\n-a\n+b\n", "line 8 of the diff: '' is not expected there"),
        (f"{HEAD}@@ -1,2 +1 @@\n-a\n+b\n", "the hunk at line 5 of the diff is cut short or too long"),
        (f"{HEAD}@@ -1,2 +1 @@\n-a\n+b\n{HEAD}", "the hunk at line 5 of the diff is cut short or too long"),
        (f"{HEAD}@@ -1 +1 @@\n-a\n a\n", "the hunk at line 5 of the diff is cut short or too long"),
        (f"{HEAD}@@ -1 +1 @\n-a\n+b\n", "line 5 of the diff: '@@ -1 +1 @' is not a hunk header"),
        (HEAD.replace("--- a/x", "--- x"), "'x' lacks its a/ or b/"),
        ("diff --git a/x b/x\nold mode abc\nnew mode 100755\n", "'abc' is not a file mode"),
    ],
)
def test_refused(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(diff.DiffError) as caught:
        diff.parse(text.encode())
    assert str(caught.value) == line


def test_nothing_and_a_signature() -> None:
    (one,) = diff.parse(f"{HEAD}@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n-- \n2.39.5\n\n".encode())
    assert one == FileDiff(
        old="x",
        new="x",
        old_id="1111111",
        new_id="2222222",
        old_mode=0o100644,
        new_mode=0o100644,
        binary=False,
        hunks=(Hunk(1, 1, 1, 1, (b"-a", b"+b", b"\\ No newline at end of file")),),
    )


def test_blank_context_lines_may_have_lost_their_blank() -> None:
    ((hunk,),) = (one.hunks for one in diff.parse(f"{HEAD}@@ -1,3 +1,2 @@\n \n\n-a\n".encode()))
    assert hunk.lines == (b" ", b"", b"-a")


def test_places() -> None:
    text = f"{HEAD}@@ -1 +1 @@ f\n-diff --git a/y b/y\n+@@ -9 +9 @@\n@@ -7,2 +7,2 @@\n a\n-b\n+c\n{HEAD}".encode()
    assert diff.places(text) == [("a/x b/x", 0), ("a/x b/x", 1), ("a/x b/x", 7), ("a/x b/x", 0)]


# --- against git ----------------------------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.from_regex(r"[ab]/[a-c]{1,2}", fullmatch=True),
    st.sampled_from(
        ["a b", " b/c b/c", "x b/x", "ü/日本", "tab\tname", 'quo"te', "back\\slash", "new\nline", "-dash", "a/\x01\x7f", "end ", "\u2028", "\udcff"]
    ),
)  # fmt: skip
LINES = st.sampled_from(
    [
        *("a\n", "b\n", "c\n", "\n", "- d\n", "+e\n", "-- \n", "e\r\n", "\f\u2028ü\n"),
        *("@@ -1 +1 @@\n", "diff --git a/x b/x\n", "\\ No newline at end of file\n", "--- a/x\n"),
    ]
)
TEXTS = st.builds(
    lambda lines, end: ("".join(lines) + end).encode(), st.lists(LINES, max_size=16), st.sampled_from(["", "", "end", " "])
)
BYTES = st.one_of(TEXTS, TEXTS, st.binary(max_size=9).map(lambda data: b"\0" + data))
ENTRIES = st.tuples(st.sampled_from([0o100644, 0o100644, 0o100755]), BYTES) | st.tuples(st.just(0o120000), st.just(b"a"))


@st.composite
def tree_pairs(draw: st.DrawFn, names: st.SearchStrategy[str] = NAMES) -> tuple[Tree, Tree]:
    """A tree and what became of it: files changed, added, removed, moved."""
    before = draw(st.dictionaries(names, ENTRIES, max_size=5))
    after = dict(before)
    for name, (mode, data) in before.items():
        what = draw(st.sampled_from(["keep", "change", "edit", "edit", "remove", "move", "chmod"]))
        if what == "change":
            after[name] = draw(ENTRIES)
        elif what == "edit" and mode != 0o120000:
            lines = data.splitlines(keepends=True)
            place = draw(st.integers(0, len(lines)))
            after[name] = (mode, b"".join([*lines[:place], draw(LINES).encode(), *lines[place + draw(st.integers(0, 2)) :]]))
        elif what in ("remove", "move"):
            del after[name]
            if what == "move":
                after[draw(names)] = (mode, data)
        elif what == "chmod" and mode != 0o120000:
            after[name] = (0o100755 if mode == 0o100644 else 0o100644, data)
    after |= draw(st.dictionaries(names, ENTRIES, max_size=2))
    return without_clashes(before), without_clashes(after)


def without_clashes(tree: Tree) -> Tree:
    """Without files below another file."""
    return {name: entry for name, entry in tree.items() if not any(other.startswith(f"{name}/") for other in tree)}


def write_trees(repository: Path, pair: tuple[Tree, Tree]) -> None:
    stream = b""
    for name, tree in zip(("before", "after"), pair, strict=True):
        stream += b"reset refs/heads/%s\ncommit refs/heads/%s\ncommitter C <c@example.org> 1 +0000\ndata 0\n" % (
            (name.encode(),) * 2
        )
        for path, (mode, data) in tree.items():
            quoted = b"".join(b"\\%03o" % byte for byte in os.fsencode(path))
            stream += b'M %o inline "%s"\ndata %d\n%s\n' % (mode, quoted, len(data), data)
    git("fast-import", "--quiet", "--force", cwd=repository, data=stream)


def raw_entries(repository: Path) -> dict[tuple[str | None, str | None], tuple[int, int, str, str]]:
    """What `git diff-tree --raw -z` says: names of both sides to their modes and ids; a change of type is two changes."""
    fields = git(
        "diff-tree", "-r", "-M", "--raw", "-z", "--full-index", "--no-abbrev", "before", "after", cwd=repository
    ).split(b"\0")[:-1]
    found: dict[tuple[str | None, str | None], tuple[int, int, str, str]] = {}
    while fields:
        old_mode, new_mode, old_id, new_id, status = fields.pop(0).decode()[1:].split(" ")
        old = os.fsdecode(fields.pop(0))
        new = os.fsdecode(fields.pop(0)) if status[0] in "RC" else old
        sides = (int(old_mode, 8), int(new_mode, 8), old_id, new_id)
        if status == "T":
            found[old, None] = (sides[0], 0, old_id, "0" * 40)
            found[None, old] = (0, sides[1], "0" * 40, new_id)
        else:
            found[None if status == "A" else old, None if status == "D" else new] = sides
    return found


def patched(data: bytes, hunks: tuple[Hunk, ...]) -> bytes:
    """A file's bytes after some hunks, strictly: old lines have to be what they say."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data)
    done: list[bytes] = []
    at = 0
    for hunk in hunks:
        start = hunk.old_start - (1 if hunk.old_count else 0)
        done += lines[at:start]
        sides: dict[str, list[bytes]] = {"-": [], "+": []}
        for place, line in enumerate(hunk.lines):
            cut = place + 1 < len(hunk.lines) and hunk.lines[place + 1].startswith(b"\\")
            for side in {" ": "-+", "-": "-", "+": "+"}.get(line[:1].decode(), ""):
                sides[side].append(line[1:] + (b"" if cut else b"\n"))
        assert sides["-"] == lines[start : start + hunk.old_count]
        assert len(done) == hunk.new_start - (1 if hunk.new_count else 0)
        assert len(sides["+"]) == hunk.new_count
        done += sides["+"]
        at = start + hunk.old_count
    return b"".join([*done, *lines[at:]])


@settings(deadline=None, max_examples=120)
@given(tree_pairs(), st.sampled_from(["true", "false"]))
@example(({"x b/x": (0o100644, b"")}, {"x b/x": (0o100755, b"")}), "true")
@example(({"x": (0o100644, b"a\n")}, {"x": (0o120000, b"a")}), "true")
@example(({}, {"\u00fc \t": (0o100644, b"\0")}), "false")
@pytest.mark.slow
def test_says_what_git_says(repository: Path, pair: tuple[Tree, Tree], quote: str) -> None:
    before, after = pair
    write_trees(repository, pair)
    text = git(
        "-c",
        f"core.quotePath={quote}",
        "diff-tree",
        "-r",
        "-p",
        "-M",
        "--binary",
        "--full-index",
        "before",
        "after",
        cwd=repository,
    )
    expected = raw_entries(repository)
    files = diff.parse(text) if expected else ()
    assert len(files) == len(expected)
    assert {(one.old, one.new) for one in files} == set(expected)
    for one in files:
        old_mode, new_mode, old_id, new_id = expected[one.old, one.new]
        assert one.path == (one.new or one.old)
        assert one.old is None or (one.old_id is None and old_id == new_id) or one.old_mode == old_mode, one
        assert one.old_id in (old_id, None)
        assert one.new_id in (new_id, None)
        if one.old_id is not None or old_mode != new_mode:
            assert (one.old_mode or 0, one.new_mode or 0) == (old_mode, new_mode)
        old, new = before.get(one.old or "", (0, b""))[1], after.get(one.new or "", (0, b""))[1]
        assert one.binary == (b"\0" in old[:8000] + new[:8000] and old_id != new_id)
        if not one.binary:
            assert patched(old, one.hunks) == new
    hunks = sum(max(1, len(one.hunks)) for one in files)
    places = diff.places(text)
    assert len(places) == sum(len(one.hunks) + 1 for one in files) >= hunks
    assert [line for _, line in places if line] == [hunk.old_start for one in files for hunk in one.hunks if hunk.old_start]


PLAIN = st.from_regex(r"[ab]/[a-c]{1,2}|a b|x ü", fullmatch=True)


@settings(deadline=None, max_examples=60)
@given(tree_pairs(PLAIN))
@pytest.mark.slow
def test_says_what_unidiff_says(repository: Path, pair: tuple[Tree, Tree]) -> None:
    write_trees(repository, pair)
    text = git(
        "-c",
        "core.quotePath=false",
        "diff-tree",
        "-r",
        "-p",
        "-M",
        "--binary",
        "--full-index",
        "before",
        "after",
        cwd=repository,
    )
    # Where unidiff takes no part: file ends within text, binary literals, and changes without a hunk.
    ours = [one for one in (diff.parse(text) if text else ()) if one.hunks]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.diff").write_bytes(text)
        theirs = [
            one
            for one in unidiff.PatchSet.from_filename(str(Path(folder) / "x.diff"), encoding="utf-8", newline="\n")
            if len(one)
        ]
    assert [(one.old or "/dev/null", one.new or "/dev/null") for one in ours] == [
        tuple(side if side == "/dev/null" else side[2:].rstrip("\t") for side in (one.source_file, one.target_file))
        for one in theirs
    ]
    for one, other in zip(ours, theirs, strict=True):
        numbers = [(hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count) for hunk in one.hunks]
        assert numbers == [(hunk.source_start, hunk.source_length, hunk.target_start, hunk.target_length) for hunk in other]
        assert [line for hunk in one.hunks for line in hunk.lines if line[:1] in b"-+"] == [
            f"{line.line_type}{line.value}".rstrip("\n").encode() for hunk in other for line in hunk if line.line_type in "-+"
        ]
        assert [pair for hunk in one.hunks for pair in hunk.added()] == [
            (line.target_line_no, line.value.rstrip("\n").encode()) for hunk in other for line in hunk if line.is_added
        ]
    assert diff.counts(ours) == (sum(one.added for one in theirs), sum(one.removed for one in theirs))


TEXTS = st.lists(
    st.sampled_from([b"one", b"two", b"", b" three", b"+x", *(b"line %d" % number for number in range(20))]), max_size=30
)


@st.composite
def versions(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A file, and what a few changes make of it; each may end without a line end."""
    before = draw(TEXTS)
    after = list(before)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(after)))
        after[place : place + draw(st.integers(0, 3))] = draw(TEXTS)[:3]
    old, new = (b"\n".join(lines) + draw(st.sampled_from((b"", b"\n"))) for lines in (before, after))
    return old, new


@settings(deadline=None, max_examples=120)
@given(versions(), st.lists(st.sampled_from([b"top", b"two", b""]), max_size=4))
@pytest.mark.slow
def test_hunks_are_put_where_their_lines_are(repository: Path, pair: tuple[bytes, bytes], above: list[bytes]) -> None:
    """On the file that a diff was made of, its hunks give the file after it; below new lines they are found nearest."""
    old, new = pair
    write_trees(repository, ({"x": (0o100644, old)}, {"x": (0o100644, new)}))
    text = git("diff-tree", "-r", "-p", "--full-index", "before", "after", cwd=repository)
    hunks = diff.parse(text)[0].hunks if text else ()
    assert diff.substituted(old, hunks) == new
    for hunk in hunks:
        before, after, tail = hunk.sides()
        assert before in old
        assert after in new
        assert before.endswith(tail)
        assert after.endswith(tail)
    parts = diff.smaller(hunks)
    assert b"".join(line for part in parts for line in part.lines if line[:1] in b"-+") == b"".join(
        line for hunk in hunks for line in hunk.lines if line[:1] in b"-+"
    )
    top = b"".join(line + b"\n" for line in above)
    lines = old.splitlines()
    # Lines that stand in many places may be found in the wrong one.
    if old and len(lines) == len(set(lines)):
        assert diff.substituted(old, parts) == new
        if not set(above) & set(lines):
            assert diff.substituted(top + old, hunks) == top + new
            assert diff.substituted(top + old, parts) == top + new


def test_hunks_whose_lines_are_nowhere() -> None:
    hunk = Hunk(2, 2, 2, 2, (b" a", b"-b", b"+c"))
    assert diff.substituted(b"x\na\nb\ny\n", (hunk,)) == b"x\na\nc\ny\n"
    assert diff.substituted(b"a\nx\nb\n", (hunk,)) is None
    assert diff.substituted(b"xa\nb\n", (hunk,)) is None
    assert diff.substituted(b"a\nb\nz\na\nb\n", (hunk,)) == b"a\nc\nz\na\nb\n"
    assert diff.substituted(b"a\nb\nx\na\nb\n", (Hunk(4, 2, 4, 2, hunk.lines),)) == b"a\nb\nx\na\nc\n"
    assert diff.substituted(b"x\n", (Hunk(0, 0, 1, 1, (b"+c",)),)) is None
    assert diff.substituted(b"", (Hunk(0, 0, 1, 1, (b"+c",)),)) == b"c\n"
