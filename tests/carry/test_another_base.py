# SPDX-License-Identifier: Apache-2.0
"""Patches whose `index` lines name blobs that their base does not have: they were made on another base."""

import re
from dataclasses import replace

import pytest

from stack.carry import apply, engine
from stack.carry.apply import DoesNotApply, Misfit
from stack.carry.outcome import Outcome
from stack.model.patch import Patch

from .trees import FILE, Scratch, Tree, patch_of


def block(name: str, middle: str = "int e") -> bytes:
    """A class; but for its first line, all are alike."""
    members = ["int a", "int b", "int e", "int d", middle, "int f", "int g", "int h"]
    return f"class {name} {{\n{''.join(f'  {one}();{chr(10)}' for one in members)}}};\n\n".encode()


def text(*names: str, changed: str = "") -> bytes:
    return b"".join(block(one, "long e") if one == changed else block(one) for one in names)


def tree(*names: str, changed: str = "") -> Tree:
    return {"x.h": (FILE, text(*names, changed=changed)), "y": (FILE, b"y\n")}


def made(scratch: Scratch, older: Tree, patched: Tree, here: Tree) -> tuple[Patch, str, str]:
    """A patch made on the first tree, what its tree is there, and the tree of another base."""
    was, after, now = scratch.commits((older, None, "older\n"), (patched, 0, "Widen c\n"), (here, None, "here\n"))
    return patch_of(scratch.format_patch(was, after)[0]), after, now


def without_blob(patch: Patch) -> Patch:
    """The patch with blobs in its index lines that no repository has."""
    unknown = re.sub(rb"(?m)^index [0-9a-f]{40}\.\.[0-9a-f]{40}", b"index " + b"7" * 40 + b".." + b"8" * 40, patch.raw)
    assert unknown != patch.raw
    return patch_of(unknown)


def short(patch: Patch) -> Patch:
    return patch_of(re.sub(rb"(?m)^index ([0-9a-f]{9})[0-9a-f]{31}\.\.([0-9a-f]{9})[0-9a-f]{31}", rb"index \1..\2", patch.raw))


@pytest.mark.parametrize("here", [("Z", "A", "B"), ("A", "Z", "B"), ("Z", "Y", "A", "B"), ("A", "B", "Z")], ids="".join)
@pytest.mark.parametrize("known", [short, replace], ids=["short id", "full id"])
def test_a_change_is_merged_from_the_blob_that_it_names(scratch: Scratch, here: tuple[str, ...], known: type) -> None:
    """The lines at the number that the patch names are another class's."""
    patch, _, base = made(scratch, tree("A", "B"), tree("A", "B", changed="A"), tree(*here))
    [wanted] = scratch.commits((tree(*here, changed="A"), None, "wanted\n"))
    assert apply.apply(scratch.objects, scratch.tree(base), known(patch)) == scratch.tree(wanted)
    carried = engine.carry(scratch.objects, base, base, [known(patch)])
    [row] = carried.rows
    assert row.tree == scratch.tree(wanted)
    assert "made on another base: x.h" in row.evidence
    # The file that is written names this base: git puts it where it belongs.
    out = patch_of(carried.exported[patch.ref.path])
    assert not apply.foreign(scratch.objects, scratch.tree(base), out)
    assert apply.apply(scratch.objects, scratch.tree(base), out) == scratch.tree(wanted)


@pytest.mark.parametrize("here", [("Z", "A", "B"), ("A", "B", "Z"), ("Z", "Y", "A")], ids="".join)
def test_without_that_blob_lines_that_stand_twice_are_a_conflict(scratch: Scratch, here: tuple[str, ...]) -> None:
    """Even at the very line that the patch names: another class may have come to stand there."""
    patch, _, base = made(scratch, tree("A", "B"), tree("A", "B", changed="A"), tree(*here))
    found = apply.apply(scratch.objects, scratch.tree(base), without_blob(patch))
    assert isinstance(found, Misfit)
    assert (found.path, found.unsure) == ("x.h", True)
    assert f"at {len(here)} places" in found.reason
    with pytest.raises(DoesNotApply):
        engine.carry(scratch.objects, base, base, [without_blob(patch)])


def test_without_that_blob_lines_that_stand_once_are_found(scratch: Scratch) -> None:
    patch, _, base = made(scratch, tree("A"), tree("A", changed="A"), {"x.h": (FILE, b"// about\n" + text("A"))})
    [wanted] = scratch.commits(({"x.h": (FILE, b"// about\n" + text("A", changed="A"))}, None, "wanted\n"))
    [row] = engine.carry(scratch.objects, base, base, [without_blob(patch)]).rows
    assert row.tree == scratch.tree(wanted)
    assert row.outcome is Outcome.MOVED
    assert "made on another base: x.h" in row.evidence


def test_a_change_in_conflict_with_its_base_is_named(scratch: Scratch) -> None:
    """The lines stand in another class, too, and `git apply` would take that one."""
    here: Tree = {"x.h": (FILE, block("A", "short e") + block("B"))}
    patch, _, base = made(scratch, tree("A", "B"), tree("A", "B", changed="A"), here)
    found = apply.apply(scratch.objects, scratch.tree(base), patch)
    assert isinstance(found, Misfit)
    assert (found.path, found.unsure) == ("x.h", True)


def test_a_patch_that_names_no_blob_applies_as_before(scratch: Scratch) -> None:
    patch, _, base = made(scratch, tree("A", "B"), tree("A", "B", changed="A"), tree("A", "B", "Z"))
    bare = patch_of(re.sub(rb"(?m)^index .*\n", b"", patch.raw))
    [wanted] = scratch.commits((tree("A", "B", "Z", changed="A"), None, "wanted\n"))
    assert apply.apply(scratch.objects, scratch.tree(base), bare) == scratch.tree(wanted)
