# SPDX-License-Identifier: Apache-2.0
"""A patch onto a tree, and commits out to patches: the same as git's own."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.carry import apply, engine
from stack.carry.apply import DoesNotApply, Misfit
from stack.carry.export import Diffs, export
from stack.carry.outcome import Outcome
from stack.model.patch import Patch
from stack.store.objects import Entry, Identity, Objects

from .trees import BODIES, FILE, LINK, PROGRAM, PROPERTY, SUBJECTS, Scratch, Tree, changed, patch_of, trees


@PROPERTY
@given(st.data())
@pytest.mark.slow
def test_whatever_git_writes_is_applied_and_exported_again(scratch: Scratch, data: st.DataObject) -> None:
    chain = [data.draw(trees(), "base")]
    for number in range(data.draw(st.integers(1, 3))):
        chain.append(data.draw(changed(chain[-1]), f"after {number}"))
        assume(chain[-1] != chain[-2])
    messages = [
        f"{data.draw(st.sampled_from(SUBJECTS))}\n\n{data.draw(st.sampled_from(BODIES))}".strip("\n") + "\n" for _ in chain
    ]
    base, *commits = scratch.commits(
        *(
            (tree, number - 1 if number else None, message)
            for number, (tree, message) in enumerate(zip(chain, messages, strict=True))
        )
    )
    raws = scratch.format_patch(base, commits[-1])
    patches = [patch_of(raw, f"up/{number}.patch") for number, raw in enumerate(raws)]
    quoted = [patch_of(raw) for raw in scratch.format_patch(base, commits[-1], "-c", "core.quotePath=true")]
    objects = scratch.objects
    parent = base
    for patch, other, commit in zip(patches, quoted, commits, strict=True):
        before, wanted = objects.tree_of(parent), scratch.tree(commit)
        assert apply.apply(objects, before, patch) == wanted
        assert apply.apply(objects, before, other) == wanted
        known = {path: entry for path in apply.touched(patch) if (entry := objects.entry(before, path))}
        by_git = apply._by_git(objects, known, patch)
        assert not isinstance(by_git, Misfit)
        assert objects.replaced(before, by_git) == wanted
        parent = commit
    ours = apply.chain(objects, base, patches)
    assert apply.chain(objects, base, patches) == ours
    assert list(export(objects, base, ours)) == raws
    with Diffs(objects) as diffs:
        for commit in ours:
            diffs.add(commit)
        assert list(diffs.finish(list(zip(patches, ours, strict=True))).values()) == raws


NOBODY = Identity("n", "n@x", "9 +0000")
TEXT = b"".join(b"line %d\n" % number for number in range(40))
BASE: Tree = {
    "a.py": (FILE, TEXT),
    "pkg/b.py": (FILE, TEXT),
    "run": (PROGRAM, b"#!\n"),
    "link": (LINK, b"a.py"),
    "data.bin": (FILE, b"\0\1"),
}


def edited(place: int, new: bytes = b"new\n", text: bytes = TEXT) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:place], new, *lines[place + 1 :]])


@pytest.mark.parametrize(
    ("after", "standing", "wanted"),
    [
        (
            {"a.py": (FILE, edited(20))},
            {"a.py": (FILE, edited(20, b"other\n"))},
            "a.py:18: the lines that it changes are not there",
        ),
        ({"a.py": (FILE, edited(20))}, {"a.py": None}, "a.py: does not exist"),
        ({"a.py": (FILE, edited(20))}, {"a.py": (LINK, b"run")}, "a.py: wrong type"),
        ({"new": (FILE, b"x\n")}, {"new": (FILE, b"y\n")}, "new: already exists"),
        ({"new": (FILE, b"")}, {"new": (FILE, b"")}, "new: already exists"),
        ({"new": (FILE, b"x\n")}, {"new/inside": (FILE, b"y\n")}, "new: already exists"),
        ({"pkg/sub/new": (FILE, b"x\n")}, {"pkg/sub": (FILE, b"y\n")}, "pkg/sub/new: already exists"),
        ({"a.py": None, "moved.py": (FILE, TEXT)}, {"moved.py": (FILE, b"")}, "moved.py: already exists"),
        ({"run": None}, {"run": (PROGRAM, b"#!/bin/sh\n")}, "run:1: the lines that it changes are not there"),
        ({"data.bin": (FILE, b"\0\2")}, {"data.bin": (FILE, b"\0\3")}, "data.bin: has other contents, and is binary"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-",
)
def test_what_does_not_fit_is_named(
    scratch: Scratch, after: dict[str, tuple[str, bytes] | None], standing: dict[str, tuple[str, bytes] | None], wanted: str
) -> None:
    def over(change: dict[str, tuple[str, bytes] | None]) -> Tree:
        return {path: file for path, file in (BASE | change).items() if file is not None}

    base, patched, other = scratch.commits(
        (BASE, None, "base\n"), (over(after), 0, "Change it\n"), (over(standing), None, "other\n")
    )
    patch = patch_of(scratch.format_patch(base, patched)[0])
    found = apply.apply(scratch.objects, scratch.tree(other), patch)
    assert isinstance(found, Misfit)
    assert str(found) == wanted
    with pytest.raises(DoesNotApply, match=r"patch one/up/change.patch does not apply to its base \(") as raised:
        apply.chain(scratch.objects, other, [patch])
    assert raised.value.misfit == found
    assert apply.apply(scratch.objects, scratch.tree(base), patch) == scratch.tree(patched)


def test_no_fuzz_and_no_search_further_than_git_apply(scratch: Scratch) -> None:
    """Lines above may have come; a changed context line may not."""
    shifted = {"a.py": (FILE, b"top\n" + TEXT)}
    near = {"a.py": (FILE, edited(19, b"changed context\n"))}
    base, patched, moved, changed_near = scratch.commits(
        *[({"a.py": (FILE, TEXT)}, None, "base\n"), ({"a.py": (FILE, edited(20))}, 0, "Change it\n")],
        *[(shifted, None, "moved\n"), (near, None, "near\n")],
    )
    patch = patch_of(scratch.format_patch(base, patched)[0])
    tree = apply.apply(scratch.objects, scratch.tree(moved), patch)
    assert not isinstance(tree, Misfit)
    entry = scratch.objects.entry(tree, "a.py")
    assert entry is not None
    assert scratch.objects.read(entry.id) == b"top\n" + edited(20)
    assert apply.apply(scratch.objects, scratch.tree(changed_near), patch) == Misfit(
        "a.py", 18, "the lines that it changes are not there"
    )


def test_a_patch_that_changes_nothing(scratch: Scratch) -> None:
    base, patched = scratch.commits((BASE, None, "base\n"), (BASE | {"a.py": (FILE, edited(20))}, 0, "Change it\n"))
    raw = scratch.format_patch(base, patched)[0].replace(b"-line 20\n+new\n", b"-line 20\n+line 20\n")
    assert apply.apply(scratch.objects, scratch.tree(base), patch_of(raw)) == Misfit("", None, "it changes nothing")


def test_a_removal_that_leaves_lines(scratch: Scratch) -> None:
    base, patched = scratch.commits(({"a": (FILE, b"1\n2\n3\n")}, None, "base\n"), ({}, 0, "Remove it\n"))
    raw = scratch.format_patch(base, patched)[0].replace(b"@@ -1,3 +0,0 @@\n-1\n-2\n-3\n", b"@@ -1,2 +0,0 @@\n-1\n-2\n")
    found = apply.apply(scratch.objects, scratch.tree(base), patch_of(raw))
    assert isinstance(found, Misfit)
    assert found.path == "a"


def test_what_is_announced_changes_nothing(scratch: Scratch) -> None:
    """Names that git quotes, files that come or are gone on either side: what is announced is only a hint."""
    after = {"a.py": (FILE, edited(20)), "ü\t/new": (FILE, b"x\n"), "link": (FILE, TEXT)}
    base, onto, one, two = scratch.commits(
        *[(BASE, None, "base\n"), ({"pkg": (FILE, b"x\n"), "a.py": (FILE, b"y\n")}, None, "onto\n")],
        *[(BASE | after, 0, "One\n"), ({"a.py": (FILE, edited(3)), "pkg/b.py": (FILE, edited(4))}, 2, "Two\n")],
    )
    patches = [patch_of(raw, f"up/{number}.patch") for number, raw in enumerate(scratch.format_patch(base, two))]
    with Objects(scratch.repository) as objects:
        apply.announce(objects, base, onto, patches)
        commits = apply.chain(objects, base, patches)
        assert [objects.tree_of(commit) for commit in commits] == [scratch.tree(one), scratch.tree(two)]


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/x", ".git/config", "a/.GIT/config", "./x"])
def test_a_path_outside_of_the_tree_is_refused(scratch: Scratch, path: str) -> None:
    base, patched = scratch.commits(({}, None, "base\n"), ({"PLACE": (FILE, b"x\n")}, 0, "Add it\n"))
    patch = patch_of(scratch.format_patch(base, patched)[0].replace(b"PLACE", path.encode()))
    with pytest.raises(StackError, match="outside of the tree"):
        apply.apply(scratch.objects, scratch.tree(base), patch)


def test_a_submodule_that_a_patch_moves(scratch: Scratch) -> None:
    objects = scratch.objects
    [start] = scratch.commits(({"a": (FILE, b"a\n")}, None, "base\n"))
    trees = [objects.replaced(objects.tree_of(start), {"lib": Entry(0o160000, digit * 40)}) for digit in "12"]
    base = objects.write_commit(trees[0], (), "base\n", NOBODY)
    patched = objects.write_commit(trees[1], (base,), "Move it\n", NOBODY)
    patch = patch_of(scratch.format_patch(base, patched)[0])
    assert apply.apply(objects, trees[0], patch) == trees[1]


def copied(scratch: Scratch, base: str, tip: str) -> list[Patch]:
    """The patches of a chain, with copies found as `git format-patch -C --find-copies-harder` finds them."""
    options = ["--full-index", "--no-stat", "--no-signature", "-N", "-C", "--find-copies-harder", "--stdout"]
    raws = [
        scratch.git("format-patch", *options, f"{commit}^!")
        for commit in scratch.git("rev-list", "--reverse", f"{base}..{tip}").decode().split()
    ]
    assert b"\ncopy from a.py\ncopy to c.py\n" in raws[0]
    return [patch_of(raw, f"up/{number}.patch") for number, raw in enumerate(raws)]


@pytest.mark.parametrize("line", [None, b"other\n"], ids=["as it was", "with another line"])
@pytest.mark.parametrize("source", [None, b"own\n"], ids=["source stays", "source changes, too"])
def test_a_copy_keeps_its_source(scratch: Scratch, line: bytes | None, source: bytes | None) -> None:
    copy = edited(20, line) if line is not None else TEXT
    kept = edited(9, source) if source is not None else TEXT
    first = BASE | {"a.py": (FILE, kept), "c.py": (FILE, copy)}
    base, *commits = scratch.commits(
        (BASE, None, "base\n"), (first, 0, "Copy it\n"), (first | {"a.py": (FILE, edited(3, text=kept))}, 1, "Change a\n")
    )
    chain = apply.chain(scratch.objects, base, copied(scratch, base, commits[-1]))
    assert [scratch.objects.tree_of(commit) for commit in chain] == [scratch.tree(commit) for commit in commits]


def test_a_copy_of_a_source_that_upstream_has_changed(scratch: Scratch) -> None:
    """The carried file gives the tree that was judged, though `copy from` would now take other lines along."""
    copy = {"c.py": (FILE, edited(20))}
    base, patched, onto = scratch.commits(
        (BASE, None, "base\n"), (BASE | copy, 0, "Copy it\n"), (BASE | {"a.py": (FILE, b"top\n" + TEXT)}, None, "onto\n")
    )
    carried = engine.carry(scratch.objects, base, onto, copied(scratch, base, patched))
    [row] = carried.rows
    assert row.outcome is Outcome.MOVED
    assert row.tree == scratch.objects.replaced(scratch.tree(onto), {"c.py": blob(scratch, edited(20))})
    assert apply.apply(scratch.objects, scratch.tree(onto), patch_of(carried.exported[row.patch.ref.path])) == row.tree


def blob(scratch: Scratch, data: bytes) -> Entry:
    return Entry(0o100644, scratch.objects.write_blob(data))
