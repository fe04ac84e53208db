# SPDX-License-Identifier: Apache-2.0
"""Hunks go where their code went, and nowhere where that is in doubt."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.carry.merge import merge
from stack.carry.relocation import Relocation, relocate, search
from stack.store.objects import Entry

from .trees import FILE, LINK, PROPERTY, Scratch, Tree


def function(name: str, size: int = 12, indent: str = "") -> str:
    """A function of which each line stands nowhere else."""
    body = "".join(f"{indent}    {name}_{number} = load_{name}({number})\n" for number in range(size))
    return f"{indent}def {name}(value):\n{body}{indent}    return {name}_0 + value\n"


def module(*parts: str) -> bytes:
    return ("import os\nimport sys\n\n\n" + "\n\n".join(parts)).encode()


A, B, C, D = (function(name) for name in ("alpha", "beta", "gamma", "delta"))
EDIT = ("    beta_5 = load_beta(5)\n", "    beta_5 = load_beta(55)\n    check(beta_5)\n")
INSERT = ("    beta_5 = load_beta(5)\n", "    beta_5 = load_beta(5)\n    check(beta_5)\n")
DROP = ("    beta_5 = load_beta(5)\n    beta_6 = load_beta(6)\n", "")


def edited(text: str | bytes, *edits: tuple[str, str]) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    for old, new in edits:
        assert data.count(old.encode()) == 1
        data = data.replace(old.encode(), new.encode())
    return data


def files(tree: dict[str, bytes]) -> Tree:
    return {path: (FILE, data) for path, data in tree.items()}


class Case:
    """A patch on an old base, and a new base."""

    def __init__(self, scratch: Scratch, before: Tree, ours: Tree, theirs: Tree) -> None:
        self.objects = scratch.objects
        commits = scratch.commits((before, None, "before"), (ours, 0, "ours"), (theirs, 0, "theirs"))
        self.before, self.ours, self.theirs = (scratch.tree(commit) for commit in commits)

    def conflicts(self) -> set[str]:
        merged = merge(self.objects, {}, self.before, self.ours, self.theirs)
        return {conflict.path for conflict in merged.conflicts}

    def relocated(self, paths: Collection[str]) -> Relocation | None:
        return relocate(self.objects, self.before, self.ours, self.theirs, paths)

    def result(self, relocation: Relocation) -> dict[str, bytes]:
        """The files of the new base with the relocation."""
        tree = self.objects.replaced(self.ours, relocation.changes)
        return {path: self.read(entry) for path, _, entry in self.objects.difference(EMPTY, tree)}

    def read(self, entry: Entry | None) -> bytes:
        assert entry is not None
        return self.objects.read(entry.id)


EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def case(scratch: Scratch, before: dict[str, bytes], ours: dict[str, bytes], theirs: dict[str, bytes]) -> Case:
    return Case(scratch, files(before), files(ours), files({**before, **theirs}))


def check(
    scratch: Scratch, *trees: dict[str, bytes], gives: dict[str, bytes], paths: Collection[str] = ("a.py",)
) -> Relocation:
    """The patch conflicts, and is relocated: `gives` are the files of the new base that change."""
    one = case(scratch, *trees)
    assert one.conflicts() == set(paths)
    relocation = one.relocated(paths)
    assert relocation is not None
    assert one.result(relocation) == {**trees[1], **gives}
    assert relocation.changes.keys() == set(paths) | gives.keys()
    return relocation


def refuse(scratch: Scratch, *trees: dict[str, bytes], paths: Collection[str] = ("a.py",)) -> None:
    """The patch conflicts, and stays so."""
    one = case(scratch, *trees)
    assert one.conflicts() == set(paths)
    assert one.relocated(paths) is None


OLD = {"a.py": module(A, B, C), "z.py": module(D)}
MOVED = {"a.py": module(A, C), "z.py": module(D), "b.py": module(B)}


@pytest.mark.parametrize("edit", [EDIT, INSERT, DROP], ids=["replace", "insert", "delete"])
def test_a_function_moved_to_a_new_file(scratch: Scratch, edit: tuple[str, str]) -> None:
    relocation = check(scratch, OLD, MOVED, {"a.py": edited(OLD["a.py"], edit)}, gives={"b.py": edited(MOVED["b.py"], edit)})
    (move,) = relocation.moves
    assert (move.old_path, move.new_path) == ("a.py", "b.py")
    line = 1 if edit is INSERT else 0
    assert OLD["a.py"].split(b"\n")[move.old_line - 1 - line] == b"    beta_5 = load_beta(5)"
    assert MOVED["b.py"].split(b"\n")[move.new_line - 1 - line] == b"    beta_5 = load_beta(5)"


def test_a_function_moved_into_a_file_that_was_there(scratch: Scratch) -> None:
    ours = {"a.py": module(A, C), "z.py": module(B, D)}
    check(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)}, gives={"z.py": edited(ours["z.py"], EDIT)})


def test_the_moved_code_was_changed_elsewhere(scratch: Scratch) -> None:
    ours = MOVED | {"b.py": edited(module(B), ("    beta_10 = load_beta(10)\n", "    beta_10 = 10\n    other()\n"))}
    check(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)}, gives={"b.py": edited(ours["b.py"], EDIT)})


def test_a_file_split_in_two(scratch: Scratch) -> None:
    ours = {"p/b.py": module(A, B), "p/c.py": module(C), "z.py": module(D)}
    change = ("    gamma_7 = load_gamma(7)\n", "    gamma_7 = 7\n")
    theirs = {"a.py": edited(OLD["a.py"], EDIT, change)}
    gives = {"p/b.py": edited(ours["p/b.py"], EDIT), "p/c.py": edited(ours["p/c.py"], change)}
    one = case(scratch, OLD, ours, theirs)
    relocation = one.relocated(["a.py"])
    assert relocation is not None
    assert one.result(relocation) == ours | gives
    assert relocation.changes.keys() == {"a.py", *gives}
    assert relocation.changes["a.py"] is None
    assert [move.new_path for move in relocation.moves] == ["p/b.py", "p/c.py"]


def test_a_file_renamed_and_changed_too_much_for_git(scratch: Scratch) -> None:
    ours = {"new/b.py": module(*(function(f"other{number}", 30) for number in range(3)), B, D[:100]), "z.py": module(D)}
    check(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)}, gives={"new/b.py": edited(ours["new/b.py"], EDIT)})


def test_a_hunk_at_the_head_of_a_function(scratch: Scratch) -> None:
    edit = ("def beta(value):\n", "def beta(value, more=0):\n")
    check(scratch, OLD, MOVED, {"a.py": edited(OLD["a.py"], edit)}, gives={"b.py": edited(MOVED["b.py"], edit)})


def method(text: str) -> str:
    return "".join("    " + line for line in text.splitlines(keepends=True))


def test_moved_into_a_class_with_other_indentation(scratch: Scratch) -> None:
    ours = MOVED | {"b.py": module("class Beta:\n" + method(B))}
    deeper = (method(EDIT[0]), method(EDIT[1]))
    check(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)}, gives={"b.py": edited(ours["b.py"], deeper)})


def test_moved_out_of_a_class_with_other_indentation(scratch: Scratch) -> None:
    old = OLD | {"a.py": module(A, "class Beta:\n" + method(B), C)}
    deeper = (method(EDIT[0]), method(EDIT[1]))
    check(scratch, old, MOVED, {"a.py": edited(old["a.py"], deeper)}, gives={"b.py": edited(MOVED["b.py"], EDIT)})


def test_added_lines_that_cannot_lose_their_indentation(scratch: Scratch) -> None:
    old = OLD | {"a.py": module(A, "class Beta:\n" + method(B), C)}
    edit = (method(EDIT[0]), '        beta_5 = """\n  text\n"""\n')
    refuse(scratch, old, MOVED, {"a.py": edited(old["a.py"], edit)})


def test_other_indentation_only_where_it_is_known_to_mean_nothing(scratch: Scratch) -> None:
    old = {"a.yaml": OLD["a.py"], "z.yaml": OLD["z.py"]}
    ours = {"a.yaml": MOVED["a.py"], "b.yaml": module("class Beta:\n" + method(B)), "z.yaml": OLD["z.py"]}
    refuse(scratch, old, ours, {"a.yaml": edited(old["a.yaml"], EDIT)}, paths=["a.yaml"])
    ours["b.yaml"] = MOVED["b.py"]
    theirs = {"a.yaml": edited(old["a.yaml"], EDIT)}
    check(scratch, old, ours, theirs, gives={"b.yaml": edited(ours["b.yaml"], EDIT)}, paths=["a.yaml"])


def test_a_result_that_python_cannot_read(scratch: Scratch) -> None:
    edit = (EDIT[0], "    beta_5 = (\n")
    refuse(scratch, OLD, MOVED, {"a.py": edited(OLD["a.py"], edit)})


def test_two_places_as_good(scratch: Scratch) -> None:
    refuse(scratch, OLD, MOVED | {"c.py": module(B, D)}, {"a.py": edited(OLD["a.py"], EDIT)})


def test_a_second_place_that_was_edited_since(scratch: Scratch) -> None:
    """Less like the old code, and nearly as good: both may be where it went."""
    other = edited(B, ("    beta_6 = load_beta(6)\n", "    beta_6 = 6\n"), ("    beta_3 = load_beta(3)\n", "    beta_3 = 3\n"))
    refuse(scratch, OLD, MOVED | {"c.py": module(other.decode())}, {"a.py": edited(OLD["a.py"], EDIT)})


def test_a_second_place_that_is_only_alike(scratch: Scratch) -> None:
    """A line that stands elsewhere, too, in other company."""
    ours = MOVED | {"c.py": module(D, "def other():\n" + EDIT[0])}
    check(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)}, gives={"b.py": edited(ours["b.py"], EDIT)})


def test_a_place_that_was_there_before(scratch: Scratch) -> None:
    """The patch's author has not changed that one."""
    old = OLD | {"z.py": module(D, B)}
    ours = {"a.py": module(A, C), "z.py": edited(old["z.py"], ("import sys", "import re"))}
    refuse(scratch, old, ours, {"a.py": edited(old["a.py"], EDIT)})


def test_a_place_that_was_there_before_and_a_new_one(scratch: Scratch) -> None:
    """Which of the two went there?"""
    old = OLD | {"z.py": module(D, B)}
    refuse(scratch, old, MOVED, {"a.py": edited(old["a.py"], EDIT)})


def test_a_place_in_a_file_that_did_not_change(scratch: Scratch) -> None:
    old = OLD | {"z.py": module(D, B)}
    refuse(scratch, old, MOVED | {"z.py": old["z.py"]}, {"a.py": edited(old["a.py"], EDIT)})


def test_upstream_changed_the_lines_and_kept_a_copy(scratch: Scratch) -> None:
    """The code is still at its place, with another content; the copy elsewhere is not where it went."""
    ours = OLD | {"a.py": edited(OLD["a.py"], (EDIT[0], "    beta_5 = load_beta(-5)\n")), "b.py": module(B)}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)})


def test_upstream_changed_the_lines_around_too_and_kept_a_copy(scratch: Scratch) -> None:
    rest = [(f"    beta_{number} = load_beta({number})\n", f"    beta_{number} = read({number})\n") for number in (4, 5, 6)]
    ours = OLD | {"a.py": edited(OLD["a.py"], *rest), "b.py": module(B)}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)})


def test_upstream_rewrote_all_but_the_line_and_kept_a_copy(scratch: Scratch) -> None:
    """Little of the code is still at its place, but the patch's line is."""
    rest = [(f"_{number} = load_beta({number})", f"_{number} = read({number})") for number in range(12) if number != 5]
    head, last = ("def beta(value)", "def better(value)"), ("return beta_0 + value", "return value")
    ours = OLD | {"a.py": edited(module(B), *rest, head, last), "b.py": module(B)}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)})
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], INSERT)})
    above = ("    beta_5 = load_beta(5)\n", "    check()\n    beta_5 = load_beta(5)\n")
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], above)})


def test_upstream_changed_the_lines_that_it_moved(scratch: Scratch) -> None:
    ours = MOVED | {"b.py": edited(MOVED["b.py"], (EDIT[0], "    beta_5 = load_beta(-5)\n"))}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)})


def test_upstream_changed_the_line_beside(scratch: Scratch) -> None:
    """Where git would see a conflict in one file, it is one in two."""
    ours = MOVED | {"b.py": edited(MOVED["b.py"], ("    beta_6 = load_beta(6)\n", "    beta_6 = 6\n"))}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)})


def test_upstream_inserted_at_the_same_place(scratch: Scratch) -> None:
    ours = MOVED | {"b.py": edited(MOVED["b.py"], (EDIT[0], EDIT[0] + "    other(beta_5)\n"))}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], INSERT)})


def test_code_that_is_gone(scratch: Scratch) -> None:
    refuse(
        scratch,
        OLD,
        {"a.py": module(A, C), "z.py": module(D), "b.py": module(function("new"))},
        {"a.py": edited(OLD["a.py"], EDIT)},
    )


@pytest.mark.parametrize("edit", [EDIT, INSERT, DROP], ids=["replace", "insert", "delete"])
def test_already_there(scratch: Scratch, edit: tuple[str, str]) -> None:
    ours = MOVED | {"b.py": edited(MOVED["b.py"], edit)}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], edit)})


def test_already_there_a_few_lines_on(scratch: Scratch) -> None:
    edit = ("    beta_9 = load_beta(9)\n", "    beta_9 = load_beta(9)\n    check(beta_5)\n")
    refuse(scratch, OLD, MOVED | {"b.py": edited(MOVED["b.py"], edit)}, {"a.py": edited(OLD["a.py"], INSERT)})


def test_already_there_in_another_file(scratch: Scratch) -> None:
    """The old code came to two files, and one of them has the change by now."""
    ours = MOVED | {"c.py": edited(module(B, D), EDIT)}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT)})


def test_a_half_of_the_hunk_moved(scratch: Scratch) -> None:
    first, second = "    return beta_0 + value\n", "def gamma(value):\n"
    edits = [(first, "    return value\n"), (second, "def gamma(value, more):\n")]
    refuse(scratch, OLD, MOVED, {"a.py": edited(OLD["a.py"], *edits)})


def test_one_hunk_stays_and_one_moves(scratch: Scratch) -> None:
    change = ("    alpha_5 = load_alpha(5)\n", "    alpha_5 = 5\n")
    gives = {"a.py": edited(MOVED["a.py"], change), "b.py": edited(MOVED["b.py"], EDIT)}
    relocation = check(scratch, OLD, MOVED, {"a.py": edited(OLD["a.py"], EDIT, change)}, gives=gives)
    assert len(relocation.moves) == 1


def test_one_hunk_moves_and_one_conflicts(scratch: Scratch) -> None:
    change = ("    alpha_5 = load_alpha(5)\n", "    alpha_5 = 5\n")
    ours = MOVED | {"a.py": edited(MOVED["a.py"], (change[0], "    alpha_5 = 6\n"))}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], EDIT, change)})


def test_two_files_to_one(scratch: Scratch) -> None:
    change = ("    delta_5 = load_delta(5)\n", "    delta_5 = 5\n")
    ours = {"a.py": module(A, C), "z.py": module(function("rest")), "b.py": module(D, B)}
    old = OLD | {"z.py": module(D, function("rest"))}
    theirs = {"a.py": edited(old["a.py"], EDIT), "z.py": edited(old["z.py"], change)}
    check(scratch, old, ours, theirs, gives={"b.py": edited(ours["b.py"], EDIT, change)}, paths=["a.py", "z.py"])
    broken = ours | {"b.py": edited(ours["b.py"], (change[0], "    delta_5 = 6\n"))}
    refuse(scratch, old, broken, theirs, paths=["a.py", "z.py"])


def test_the_patch_changes_the_target_too(scratch: Scratch) -> None:
    change = ("    delta_5 = load_delta(5)\n", "    delta_5 = 5\n")
    ours = {"a.py": module(A, C), "z.py": module(B, D)}
    theirs = {"a.py": edited(OLD["a.py"], EDIT), "z.py": edited(OLD["z.py"], change)}
    check(scratch, OLD, ours, theirs, gives={"z.py": edited(ours["z.py"], EDIT, change)})


def test_the_target_is_in_conflict_too(scratch: Scratch) -> None:
    """Its own hunks are there as well: one that fits, and one that goes elsewhere."""
    rest = function("rest")
    old = OLD | {"z.py": module(D, rest)}
    ours = {"a.py": module(A, C), "z.py": module(rest, B), "d.py": module(D)}
    change = ("    delta_5 = load_delta(5)\n", "    delta_5 = 5\n")
    fits = ("    rest_5 = load_rest(5)\n", "    rest_5 = 5\n")
    theirs = {"a.py": edited(old["a.py"], EDIT), "z.py": edited(old["z.py"], change, fits)}
    gives = {"z.py": edited(ours["z.py"], fits, EDIT), "d.py": edited(ours["d.py"], change)}
    check(scratch, old, ours, theirs, gives=gives, paths=["a.py", "z.py"])


def test_moved_within_the_file(scratch: Scratch) -> None:
    ours = OLD | {"a.py": module(B, A, C)}
    edits = [EDIT, ("    alpha_5 = load_alpha(5)\n", "    alpha_5 = 5\n")]
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], *edits)})


IMPORTS = b"import os\nimport sys\nimport typing\nfrom collections import abc\nimport zlib\n"


def test_imports_and_licences_are_everywhere(scratch: Scratch) -> None:
    """What two files have in common at their top does not make one of them the other."""
    head = b"# Copyright of somebody\n# Licensed under some license\n# You may not use this file\n" + IMPORTS
    old = {"a.py": head + A.encode(), "z.py": OLD["z.py"]}
    ours = {"b.py": head + D.encode() + C.encode(), "z.py": OLD["z.py"]}
    refuse(scratch, old, ours, {"a.py": edited(old["a.py"], ("import typing\n", "import types\nimport typing\n"))})
    refuse(scratch, old, ours, {"a.py": edited(old["a.py"], ("# You may not use", "# You may use"))})


def test_other_kinds_of_files_are_no_place(scratch: Scratch) -> None:
    refuse(
        scratch, OLD, {"a.py": MOVED["a.py"], "z.py": OLD["z.py"], "b.md": MOVED["b.py"]}, {"a.py": edited(OLD["a.py"], EDIT)}
    )


@pytest.mark.parametrize(("suffix", "found"), [("cuh", True), ("h", True), ("py", False)])
def test_cpp_code_moves_between_its_kinds_of_files(scratch: Scratch, suffix: str, found: bool) -> None:
    old = {"a.cu": OLD["a.py"]}
    ours = {"a.cu": MOVED["a.py"], f"b.{suffix}": MOVED["b.py"]}
    theirs = {"a.cu": edited(OLD["a.py"], EDIT)}
    if found:
        check(scratch, old, ours, theirs, gives={f"b.{suffix}": edited(MOVED["b.py"], EDIT)}, paths=["a.cu"])
    else:
        refuse(scratch, old, ours, theirs, paths=["a.cu"])


@pytest.mark.parametrize("kind", ["deleted", "added", "link", "mode", "binary", "no line end"])
def test_changes_that_are_not_lines(scratch: Scratch, kind: str) -> None:
    before, ours = files(OLD), files(MOVED)
    theirs = before | {"a.py": (FILE, edited(OLD["a.py"], EDIT))}
    assert Case(scratch, before, ours, theirs).relocated(["a.py"]) is not None
    if kind == "deleted":
        del theirs["a.py"]
    elif kind == "added":
        del before["a.py"]
    elif kind == "link":
        theirs["a.py"] = (LINK, b"z.py")
    elif kind == "mode":
        theirs["a.py"] = ("100755", theirs["a.py"][1])
    elif kind == "binary":
        theirs["a.py"] = (FILE, theirs["a.py"][1] + b"\0")
    else:
        theirs["a.py"] = (FILE, theirs["a.py"][1].rstrip(b"\n"))
    assert Case(scratch, before, ours, theirs).relocated(["a.py"]) is None


def test_paths_that_the_patch_does_not_change(scratch: Scratch) -> None:
    one = case(scratch, OLD, MOVED, {"a.py": edited(OLD["a.py"], EDIT)})
    assert one.relocated([]) is None
    assert one.relocated(["b.py"]) is None
    assert one.relocated(["a.py", "z.py"]) is None


def test_a_link_or_a_large_file_is_no_place(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    before, theirs = files(OLD), files(OLD | {"a.py": edited(OLD["a.py"], EDIT)})
    one = Case(scratch, before, files(MOVED) | {"b.py": (LINK, MOVED["b.py"])}, theirs)
    assert one.relocated(["a.py"]) is None
    one = Case(scratch, before, files(MOVED), theirs)
    monkeypatch.setattr(search, "LARGEST", len(MOVED["b.py"]) - 1)
    assert one.relocated(["a.py"]) is None
    monkeypatch.setattr(search, "LARGEST", len(MOVED["b.py"]))
    assert one.relocated(["a.py"]) is not None
    monkeypatch.setattr(search, "MOST_FILES", 1)
    assert one.relocated(["a.py"]) is None


def test_the_targets_mode_and_odd_names_stay(scratch: Scratch) -> None:
    before, theirs = files({"ü b.py": OLD["a.py"]}), files({"ü b.py": edited(OLD["a.py"], EDIT)})
    ours = files({"ü b.py": MOVED["a.py"]}) | {"*.py": ("100755", MOVED["b.py"])}
    one = Case(scratch, before, ours, theirs)
    relocation = one.relocated(["ü b.py"])
    assert relocation is not None
    entry = relocation.changes["*.py"]
    assert entry is not None
    assert entry.mode == 0o100755
    assert one.read(entry) == edited(MOVED["b.py"], EDIT)


def test_the_change_stood_elsewhere_before(scratch: Scratch) -> None:
    """What a file had all along does not say that the patch has landed."""
    old = OLD | {"z.py": edited(module(D, B), EDIT)}
    ours = MOVED | {"z.py": edited(old["z.py"], ("import sys", "import re"))}
    check(scratch, old, ours, {"a.py": edited(old["a.py"], EDIT)}, gives={"b.py": edited(ours["b.py"], EDIT)})


def test_a_line_that_its_function_has_more_than_once(scratch: Scratch) -> None:
    text = edited(B, *((f"    beta_{number} = load_beta({number})\n", "    advance(value)\n") for number in (5, 8))).decode()
    old, ours = OLD | {"a.py": module(A, text, C)}, MOVED | {"b.py": module(text)}
    edit = ("    advance(value)\n    beta_6", "    advance(value, 1)\n    beta_6")
    check(scratch, old, ours, {"a.py": edited(old["a.py"], edit)}, gives={"b.py": edited(ours["b.py"], edit)})


def test_too_little_to_tell_its_place(scratch: Scratch) -> None:
    text = "def small(value):\n    other(value)\n    another(value)\n    return value + 1\n"
    old, ours = OLD | {"a.py": module(A, text, C)}, MOVED | {"b.py": module(text)}
    refuse(scratch, old, ours, {"a.py": edited(old["a.py"], ("return value + 1", "return value + 2"))})


def test_an_insertion_with_one_side_only(scratch: Scratch) -> None:
    last = "    return beta_0 + value\n"
    ours = MOVED | {"a.py": module(A)}
    refuse(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], (last, last + "    more(value)\n"))})


def test_a_line_that_upstream_indented(scratch: Scratch) -> None:
    """Its neighbours are where they were: it is not the same line."""
    old, ours = {"a.cu": OLD["a.py"]}, {"a.cu": MOVED["a.py"], "b.cu": edited(MOVED["b.py"], (EDIT[0], "    " + EDIT[0]))}
    refuse(scratch, old, ours, {"a.cu": edited(OLD["a.py"], EDIT)}, paths=["a.cu"])


def test_the_first_and_the_last_line_of_the_target(scratch: Scratch) -> None:
    head, last = ("def beta(value):\n", "def beta(value, more=0):\n"), ("return beta_0 + value", "return value")
    ours = MOVED | {"b.py": B.rstrip("\n").encode()}
    for edit in (head, last):
        check(scratch, OLD, ours, {"a.py": edited(OLD["a.py"], edit)}, gives={"b.py": edited(ours["b.py"], edit)})


def test_blank_lines_have_no_indentation(scratch: Scratch) -> None:
    old = OLD | {"a.py": module(A, "class Beta:\n" + method(B), C)}
    edit = (EDIT[0], EDIT[0] + "\n    check(beta_5)\n")
    deeper = (method(EDIT[0]), method(EDIT[0]) + "\n        check(beta_5)\n")
    check(scratch, old, MOVED, {"a.py": edited(old["a.py"], deeper)}, gives={"b.py": edited(MOVED["b.py"], edit)})


def test_a_path_of_which_every_hunk_fits(scratch: Scratch) -> None:
    one = case(scratch, OLD, MOVED, {"a.py": edited(OLD["a.py"], ("load_alpha(5)", "load_alpha(55)"))})
    assert not one.conflicts()
    assert one.relocated(["a.py"]) is None


def test_a_path_that_is_no_file_any_more(scratch: Scratch) -> None:
    before, theirs = files(OLD), files(OLD | {"a.py": edited(OLD["a.py"], EDIT)})
    assert Case(scratch, before, files(MOVED) | {"a.py": (LINK, b"b.py")}, theirs).relocated(["a.py"]) is None
    folder = files({"b.py": MOVED["b.py"], "a.py/c.py": MOVED["a.py"]})
    assert Case(scratch, before, folder, theirs).relocated(["a.py"]) is None


def test_a_path_that_is_a_pattern(scratch: Scratch) -> None:
    change = ("    delta_5 = load_delta(5)\n", "    delta_5 = 5\n")
    old = {"*.py": OLD["a.py"], "z.py": OLD["z.py"]}
    ours = {"*.py": MOVED["a.py"], "b.py": MOVED["b.py"], "z.py": OLD["z.py"]}
    theirs = {"*.py": edited(OLD["a.py"], EDIT), "z.py": edited(OLD["z.py"], change)}
    relocation = case(scratch, old, ours, theirs).relocated(["*.py"])
    assert relocation is not None
    assert relocation.changes.keys() == {"*.py", "b.py"}


def test_a_line_of_too_many_places(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    one = case(scratch, OLD, MOVED, {"a.py": edited(OLD["a.py"], EDIT)})
    monkeypatch.setattr(search, "MOST_PLACES", 0)
    assert one.relocated(["a.py"]) is None


LINES = st.integers(30, 70)


@PROPERTY
@given(st.data())
def test_the_true_place_or_none(scratch: Scratch, data: st.DataObject) -> None:
    """Lines that stand nowhere else, a block of them moved: the hunk goes to where its lines went, or nowhere."""
    lines = [f"value_{number} = {number}\n" for number in range(data.draw(LINES, "lines"))]
    low = data.draw(st.integers(0, len(lines) - 5), "low")
    high = data.draw(st.integers(low + 5, len(lines)), "high")
    first = data.draw(st.integers(low, high - 1), "first")
    size = data.draw(st.integers(0, 4), "size")
    new = [f"new_{number} = {number}\n" for number in range(data.draw(st.integers(0 if size else 1, 3), "new"))]
    other = [f"other_{number} = {number}\n" for number in range(data.draw(LINES, "other"))]
    at = data.draw(st.integers(0, len(other)), "at")
    ours = {"b.py": [*other[:at], *lines[low:high], *other[at:]], "a.py": [*lines[:low], *lines[high:]]}
    if data.draw(st.booleans(), "change another line"):
        ours["b.py"][data.draw(st.integers(0, len(ours["b.py"]) - 1), "which")] = "changed = 1\n"
    theirs = [*lines[:first], *new, *lines[first + size :]]
    text = {path: "".join(content).encode() for path, content in ours.items()}
    one = case(
        scratch, {"a.py": "".join(lines).encode(), "b.py": "".join(other).encode()}, text, {"a.py": "".join(theirs).encode()}
    )
    relocation = one.relocated(["a.py"])
    if relocation is None:
        return
    removed = lines[first : first + size]
    place = ours["b.py"].index(lines[first]) if removed or lines[first] in ours["b.py"] else -1
    assert ours["b.py"][place : place + len(removed)] == removed
    expected = [*ours["b.py"][:place], *new, *ours["b.py"][place + len(removed) :]]
    assert one.result(relocation) == {"a.py": text["a.py"], "b.py": "".join(expected).encode()}
