# SPDX-License-Identifier: Apache-2.0
"""Our merge of a change into a tree gives what `git merge-tree` gives on the whole trees, and says where they disagree."""

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.carry import mergetree
from stack.carry.merge import FileMerges, ahead, conflict_lines, edits, merge, merge_files
from stack.model.diff import parse
from stack.store import git
from stack.store.objects import EMPTY_TREE, Entry

from .trees import FILE, LINK, PROGRAM, PROPERTY, Scratch, Tree, changed, patch_of, trees

TEXT = b"".join(b"line %d\n" % number for number in range(30))


def edited(place: int, new: bytes = b"new\n") -> bytes:
    lines = TEXT.splitlines(keepends=True)
    return b"".join([*lines[:place], new, *lines[place + 1 :]])


def check(scratch: Scratch, base: Tree, ours: Tree, theirs: Tree) -> set[str]:
    """Hold our merge against git's; returns the paths in conflict."""
    commits = scratch.commits((base, None, "base\n"), (ours, 0, "ours\n"), (theirs, 0, "theirs\n"))
    done = git.run(
        ["merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", *commits[1:]],
        env={"GIT_DIR": str(scratch.repository)},
        accept=(0, 1),
    )
    tree, *stages = done.stdout.decode().rstrip("\0").split("\0")
    # Where two things cannot have one name, git adds its commit's id to one of them.
    paths = {re.sub(r"~[0-9a-f]{40}(_\d+)?$", "", path) for path in stages}
    ids = [scratch.objects.tree_of(commit) for commit in commits]
    for merges in ({}, ahead(scratch.objects, ids[1], [ids[0], ids[2]])):
        found = merge(scratch.objects, merges, *ids)
        assert bool(found.conflicts) == bool(done.returncode)
        # A folder's conflict is said in words alone: then it has no path that is unmerged.
        assert not stages or {conflict.path for conflict in found.conflicts} == paths
        assert found.conflicts or found.tree == tree
        assert not [one for one in found.conflicts if re.search(r"[0-9a-f]{40}|\b0000", one.reason)]
    return paths


@PROPERTY
@given(st.data())
def test_the_same_as_git(scratch: Scratch, data: st.DataObject) -> None:
    base = data.draw(trees(), "base")
    check(scratch, base, data.draw(changed(base, folders=True), "ours"), data.draw(changed(base, folders=True), "theirs"))


@PROPERTY
@given(st.data())
def test_a_foreseen_chain_gives_what_an_unforeseen_one_gives(scratch: Scratch, data: st.DataObject) -> None:
    """`ahead` only saves calls: the trees and conflicts of a chain are the same without it."""
    chain = [data.draw(trees(), "base")]
    for _ in range(data.draw(st.integers(1, 4))):
        chain.append(data.draw(changed(chain[-1], most=2)))
    onto = data.draw(changed(chain[0], most=3), "onto")
    ids = [
        scratch.objects.tree_of(commit)
        for commit in scratch.commits((onto, None, "onto\n"), *((tree, None, "one\n") for tree in chain))
    ]
    results = []
    for merges in ({}, ahead(scratch.objects, ids[0], ids[1:])):
        tip, found = ids[0], []
        for before, after in itertools.pairwise(ids[1:]):
            merged = merge(scratch.objects, merges, before, tip, after)
            tip = tip if merged.conflicts else merged.tree
            # A tree with conflicts has markers, and those the ids of the commits that were merged.
            found.append((merged.conflicts, merged.notes, None if merged.conflicts else merged.tree))
        results.append((tip, found))
    assert results[0] == results[1]


LINE_SETS = (("one", "two", ""), tuple(f"line {number}" for number in range(40)))


@st.composite
def long_files(draw: st.DrawFn) -> list[bytes]:
    """Lines of a file: all different, or so few that the same lines stand in many places."""
    some = draw(st.sampled_from(LINE_SETS))
    return [line.encode() for line in draw(st.lists(st.sampled_from(some), min_size=12, max_size=40))]


@st.composite
def edited_lines(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    """A change in one or two places; what comes may be there already."""
    after = list(lines)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(after)))
        new = draw(st.lists(st.sampled_from([b"new", b"", b"line 3", b"one", *lines[:2]]), max_size=3))
        after[place : place + draw(st.integers(0, 2))] = new
    return after


@PROPERTY
@given(st.data())
def test_what_is_guessed_never_becomes_a_result(scratch: Scratch, data: st.DataObject) -> None:
    """Whatever is known of the patches, right or wrong: each merge is the one that git makes of these three files."""
    chain = [data.draw(long_files(), "base")]
    for _ in range(data.draw(st.integers(1, 4))):
        chain.append(data.draw(edited_lines(chain[-1])))
    onto = data.draw(edited_lines(chain[0]), "onto")
    end = data.draw(st.sampled_from((b"", b"\n")))
    objects = scratch.objects
    blobs = [objects.write_blob(b"\n".join(lines) + end) for lines in (onto, *chain)]
    ids = [objects.replaced(EMPTY_TREE, {"a": Entry(0o100644, blob)}) for blob in blobs]
    known = {
        (old, new): parse(scratch.git("diff-tree", "-p", old_tree, new_tree))[0].hunks
        for (old, old_tree), (new, new_tree) in itertools.pairwise(zip(blobs[1:], ids[1:], strict=True))
        if old != new
    }
    wrong = dict(zip(known, [*list(known.values())[1:], ()], strict=False))
    for knowing in (known, wrong):
        merges = ahead(objects, ids[0], ids[1:], dict(knowing))
        assert ahead(objects, ids[0], ids[1:]).keys() <= merges.keys()
        for triple, found in merges.items():
            alone = FileMerges()
            merge_files(objects, alone, [triple])
            assert alone[triple].conflicts == found.conflicts
            # A file with conflicts has markers, and those the ids of the commits that were merged.
            assert found.conflicts or alone[triple].entry == found.entry


def test_what_is_known_saves_calls_on_every_rung(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six patches to one file take two calls of git, and again two on the next rung; without knowing them, six."""
    calls = []
    start = mergetree.Merging.__init__

    def counting(*args: Any) -> None:
        calls.append(args)
        start(*args)

    monkeypatch.setattr(mergetree.Merging, "__init__", counting)
    lines = TEXT.splitlines(keepends=True)
    chain = [TEXT]
    for number in range(6):
        lines[4 * number + 3] = b"patch %d\n" % number
        chain.append(b"".join(lines))
    rungs = [TEXT + b"upstream\n", b"top\n" + TEXT + b"upstream\n"]
    base, *commits = scratch.commits(
        *(({"a": (FILE, text)}, place - 1 if place else None, f"{place}\n") for place, text in enumerate(chain))
    )
    patches = [patch_of(raw, f"up/{number}.patch") for number, raw in enumerate(scratch.format_patch(base, commits[-1]))]
    objects = scratch.objects
    trees = [objects.tree_of(commit) for commit in (base, *commits)]
    for known, wanted in ((edits(patches), [2, 2]), ({}, [6, 6])):
        found, standing = [], trees
        for onto in (
            objects.tree_of(commit) for commit in scratch.commits(*(({"a": (FILE, text)}, None, "x\n") for text in rungs))
        ):
            calls.clear()
            merges = ahead(objects, onto, standing, known)
            tips = [onto]
            for before, after in itertools.pairwise(standing):
                tips.append(merge(objects, merges, before, tips[-1], after).tree)
            standing = tips
            found.append(len(calls))
        assert found == wanted


BOTH: Tree = {"d/a": (FILE, TEXT), "d/b": (FILE, b"b\n"), "e/c": (FILE, b"c\n"), "top": (PROGRAM, b"#!\n")}


@pytest.mark.parametrize(
    ("ours", "theirs", "conflicts"),
    [
        ({}, {"d/a": (FILE, edited(3))}, set()),
        ({"d/a": (FILE, edited(20))}, {"d/a": (FILE, edited(3))}, set()),
        ({"d/a": (FILE, edited(3))}, {"d/a": (FILE, edited(3))}, set()),
        ({"d/a": (FILE, edited(3, b"x\n"))}, {"d/a": (FILE, edited(3))}, {"d/a"}),
        ({"d/a": None}, {"d/a": (FILE, edited(3))}, {"d/a"}),
        ({"d/a": (FILE, edited(3))}, {"d/a": None}, {"d/a"}),
        ({"d/a": None}, {"d/a": None}, set()),
        ({"d/a": None, "d/z": (FILE, TEXT)}, {"d/a": (FILE, edited(3))}, set()),
        ({"d/a": None, "d/z": (FILE, TEXT)}, {"d/a": None, "d/y": (FILE, TEXT)}, {"d/a", "d/y", "d/z"}),
        ({"d/a": None}, {"d/a": None, "d/y": (FILE, TEXT)}, {"d/y"}),
        ({"d/a": (FILE, edited(3))}, {"d/a": None, "d/y": (FILE, TEXT)}, set()),
        ({"d/a": None, "d/b": None, "n/a": (FILE, TEXT), "n/b": (FILE, b"b\n")}, {"d/new": (FILE, b"x\n")}, {"n/new"}),
        ({"d/a": None, "d/b": None, "n/a": (FILE, TEXT), "n/b": (FILE, b"b\n")}, {"d/s/new": (FILE, b"x\n")}, set()),
        ({"d/new": (FILE, b"x\n")}, {"d/a": None, "d/b": None, "n/a": (FILE, TEXT), "n/b": (FILE, b"b\n")}, {"n/new"}),
        ({"new": (FILE, b"x\n")}, {"new": (FILE, b"x\n")}, set()),
        ({"new": (FILE, b"x\n")}, {"new": (FILE, b"y\n")}, {"new"}),
        ({"new": (FILE, b"x\n")}, {"new": (PROGRAM, b"x\n")}, {"new"}),
        ({"new": (FILE, b"x\n")}, {"new/inside": (FILE, b"y\n")}, {"new"}),
        ({"new/inside": (FILE, b"x\n")}, {"new": (FILE, b"y\n")}, {"new"}),
        ({"top": (FILE, b"#!\n")}, {"top": (PROGRAM, b"#!/bin/sh\n")}, set()),
        ({"top": (LINK, b"d/a")}, {"top": (PROGRAM, b"#!/bin/sh\n")}, {"top"}),
        ({"top": (LINK, b"d/a")}, {"top": (LINK, b"d/b")}, {"top"}),
        ({"d/b": (FILE, b"\0x")}, {"d/b": (FILE, b"\0y")}, {"d/b"}),
    ],
)
def test_cases(
    scratch: Scratch,
    ours: dict[str, tuple[str, bytes] | None],
    theirs: dict[str, tuple[str, bytes] | None],
    conflicts: set[str],
) -> None:
    def over(change: dict[str, tuple[str, bytes] | None]) -> Tree:
        return {path: file for path, file in (BOTH | change).items() if file is not None}

    assert check(scratch, BOTH, over(ours), over(theirs)) == conflicts


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\n", []),
        ("a\n<<<<<<< onto\nb\n=======\nc\n>>>>>>> patch\nd\n", [(2, 2)]),
        ("<<<<<<< onto\na\nb\n||||||| base\nx\n=======\nc\n>>>>>>> patch\n", [(1, 2)]),
        ("a\n<<<<<<< onto\n=======\nc\n>>>>>>> patch\nd\n", [(1, 1)]),
        ("<<<<<<< onto\n=======\nc\n>>>>>>> patch\nd\n", [(1, 1)]),
        ("a\n<<<<<<< o\nb\n=======\nc\n>>>>>>> p\nd\n<<<<<<< o\ne\nf\n=======\n>>>>>>> p\n", [(2, 2), (4, 5)]),
        ("a\r\n<<<<<<< onto\r\nb\r\n=======\r\nc\r\n>>>>>>> patch\r\n", [(2, 2)]),
        ("title\n=======\n>>>>>>> no conflict\n", []),
        ("title\n=======\n<<<<<<< o\nb\n=======\nc\n>>>>>>> p\n", [(3, 3)]),
        ("<<<<<<<< eight\n", []),
    ],
)
def test_conflict_lines(text: str, lines: list[tuple[int, int]]) -> None:
    assert conflict_lines(text.encode()) == lines


def test_a_conflict_has_its_lines_in_the_new_base(scratch: Scratch) -> None:
    ours = {"a": (FILE, b"top\n" + edited(3, b"x\n"))}
    commits = scratch.commits(
        ({"a": (FILE, TEXT)}, None, "base\n"), (ours, 0, "ours\n"), ({"a": (FILE, edited(3))}, 0, "theirs\n")
    )
    base, onto, theirs = (scratch.objects.tree_of(commit) for commit in commits)
    [conflict] = merge(scratch.objects, {}, base, onto, theirs).conflicts
    assert (conflict.path, conflict.lines, conflict.reason) == ("a", (5, 5), "content")


@pytest.mark.parametrize(("upstream", "times"), [(b"other\n", 1), (b"", 0)])
def test_other_work_is_done_once_while_git_merges(scratch: Scratch, upstream: bytes, times: int) -> None:
    """Without `known`, two patches to one file take two rounds of merges; without upstream's change, they take none."""
    texts = (TEXT + upstream, TEXT, edited(3), edited(3, b"newer\n"))
    commits = scratch.commits(*(({"a": (FILE, text)}, None, f"{place}\n") for place, text in enumerate(texts)))
    onto, *chain = (scratch.objects.tree_of(commit) for commit in commits)
    done: list[str] = []
    ahead(scratch.objects, onto, chain, meanwhile=lambda: done.append("once"))
    assert done == ["once"] * times
