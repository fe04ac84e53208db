# SPDX-License-Identifier: Apache-2.0
"""Random branches in random series give the tree of the branch, and a stack that `stack lint` accepts."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.carry.importing import ordering
from stack.carry.lint import lint
from stack.model.diff import parse

from ..world import numbered
from .conftest import Project
from .test_quilt import TREE

EDITS = st.tuples(
    st.sampled_from(["src/web.c", "src/tls.c"]), st.integers(1, 12), st.sampled_from("xyz"), st.sampled_from("rid")
)
"""A file, a line, and what happens: it is replaced, something is inserted above it, or it goes."""


def edited(files: dict[str, bytes], edit: tuple[str, int, str, str]) -> dict[str, bytes]:
    path, line, letter, kind = edit
    lines = files[path].splitlines(keepends=True)
    place = min(line, len(lines) - 1)
    lines[place : place + (kind != "i")] = [] if kind == "d" else [f"{letter} {place}\n".encode()]
    return {**files, path: b"".join(lines)}


def bring(project: Project, trees: list[dict[str, bytes]], labels: list[str]) -> None:
    """Commit the trees, import them with a series for each label, and compare the result."""
    project.clone.git("checkout", "--quiet", "mine")
    for number, (old, tree, label) in enumerate(zip(trees, trees[1:], labels, strict=False)):
        gone = [path for path in old if path not in tree]
        if gone:
            project.clone.git("rm", "--quiet", "--", *gone)
        if tree != old:
            project.clone.commit(tree, f"[{label}] Change {number}")
    if trees[-1] == trees[0] and all(tree == trees[0] for tree in trees):
        return
    work = project.bring(project.clone.path, "mine", rules=["prefix"])
    assert all("holds it only once" in one.reason for one in work.left)
    if not work.left:
        assert {path: data for path, data in project.tip().items() if path in trees[-1] or path in trees[0]} == trees[-1]
    with project.stores() as stores:
        assert [finding.problem for finding in lint(stores) if "Signed-off-by" not in finding.problem] == []


START = {"src/web.c": numbered("web", count=16), "src/tls.c": numbered("tls", count=16)}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(EDITS, st.sampled_from("abc")), min_size=2, max_size=9))
def test_edits_of_lines(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[tuple[str, int, str, str], str]]) -> None:
    project = started(tmp_path_factory, START)
    trees = [START]
    for edit, _ in edits:
        trees.append(edited(trees[-1], edit))
    bring(project, trees, [label for _, label in edits])


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TREE, min_size=2, max_size=5), st.lists(st.sampled_from("abc"), min_size=5, max_size=5))
def test_whole_trees(tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, bytes]], labels: list[str]) -> None:
    bring(started(tmp_path_factory, trees[0]), trees, labels)


def started(places: pytest.TempPathFactory, files: dict[str, bytes]) -> Project:
    """A project whose newest release, on which the clone's branch begins, has these files."""
    project = Project(places.mktemp("branch"))
    project.remote.git("rm", "--quiet", "-r", ".")
    project.remote.commit(files, "Random")
    project.remote.tag("release-2.0.0")
    project.pin("release-2.0.0")
    project.clone.git("fetch", "--quiet", "--tags", "up")
    project.clone.git("checkout", "--quiet", "-B", "mine", "release-2.0.0")
    return project


def test_lines_that_touch_depend_on_each_other() -> None:
    def diff(path: str, start: int, old: str, new: str, kind: str = "") -> bytes:
        counts = f"-{start},{len(old.split())} +{start},{len(new.split())}"
        lines = "".join(f"-{one}\n" for one in old.split()) + "".join(f"+{one}\n" for one in new.split())
        return f"diff --git a/{path} b/{path}\n{kind}--- a/{path}\n+++ b/{path}\n@@ {counts} @@\n{lines}".encode()

    chain = [
        diff("f", 10, "a", "b c"),
        diff("f", 12, "d", "e"),
        diff("f", 20, "x", "y"),
        diff("f", 11, "c", "d"),
        diff("g", 1, "x", "y"),
    ]
    assert ordering.dependencies([parse(one) for one in chain]) == [set(), {0}, set(), {0, 1}, set()]
    moved = diff("f", 20, "x", "y", "old mode 100644\nnew mode 100755\n")
    assert ordering.dependencies([parse(one) for one in (chain[0], moved, chain[4], chain[1])]) == [set(), {0}, set(), {0, 1}]


def test_order_by_need_and_cycles() -> None:
    order = ordering.settled(["b", "a", "b"], [set(), set(), {1}], ())
    assert (order.order, order.places, order.moved) == (("a", "b"), (1, 0, 2), ())
    cycle = ordering.settled(["a", "b", "a", "a"], [set(), {0}, {1}, {2}], ())
    assert (cycle.series, cycle.moved) == (("a", "b", "b", "b"), ((2, 1), (3, 2)))
    fixed = ordering.settled(["x", "y", "x"], [set(), set(), {1}], ("x", "y"))
    assert (fixed.series, fixed.order) == (("x", "y", "y"), ("x", "y"))


def test_a_missed_dependency_is_found_by_merging(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the lines tell, conflicts and the final tree tell it."""
    monkeypatch.setattr(ordering, "dependencies", lambda chain: [set() for _ in chain])
    trees = [START]
    for edit in (
        ("src/web.c", 3, "x", "r"),
        ("src/web.c", 3, "y", "r"),
        ("src/web.c", 3, "z", "r"),
        ("src/tls.c", 3, "z", "r"),
    ):
        trees.append(edited(trees[-1], edit))
    project.remote.commit(START, "Start")
    project.remote.tag("release-2.0.0")
    project.pin("release-2.0.0")
    project.clone.git("fetch", "--quiet", "--tags", "up")
    project.clone.git("checkout", "--quiet", "-B", "mine", "release-2.0.0")
    bring(project, trees, ["a", "b", "a", "b"])
    assert [len(files) for files in project.series().values()] == [1, 3]


def test_no_order_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from stack.carry.importing import reordering  # noqa: PLC0415

    project.clone.commit({"Makefile": b"mine\n"}, "Mine")
    monkeypatch.setattr(reordering, "_reordered", lambda *_: ([], reordering._Blocked(0, frozenset({"Makefile"}))))
    with pytest.raises(StackError, match="in the order of these series"):
        project.bring(project.clone.path, "mine")
