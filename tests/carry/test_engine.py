# SPDX-License-Identifier: Apache-2.0
"""Carrying a chain: every patch is tried, each gets its outcome, and what comes out is what `git rebase` makes."""

from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stack.carry import engine
from stack.carry.apply import DoesNotApply
from stack.carry.engine import Carry, step_name
from stack.carry.outcome import Outcome
from stack.model.ids import CommitId
from stack.model.patch import Patch
from stack.store import git

from .trees import FILE, PROPERTY, Scratch, Tree, changed, patch_of, trees

C, M, L, X = Outcome.CLEAN, Outcome.MOVED, Outcome.LANDED, Outcome.CONFLICT


def text(changes: Mapping[int, str] | None = None, *, above: int = 0) -> bytes:
    lines = [(changes or {}).get(number, f"line {number}") for number in range(1, 41)]
    return "".join(f"{line}\n" for line in ["above"] * above + lines).encode()


def tree(changes: Mapping[int, str] | None = None, *, above: int = 0, name: str = "a", **more: bytes) -> Tree:
    return {name: (FILE, text(changes, above=above)), "b": (FILE, b"b\n")} | {path: (FILE, data) for path, data in more.items()}


def chain(
    scratch: Scratch, base: Tree, onto: Tree, after: list[Tree]
) -> tuple[CommitId, CommitId, list[CommitId], list[Patch]]:
    numbers = range(1, len(after) + 1)
    base_id, onto_id, *commits = scratch.commits(
        (base, None, "base\n"),
        (onto, None, "onto\n"),
        *(
            (one, number if number > 1 else 0, f"Patch {number}\n\nSigned-off-by: A <a@x>\n")
            for number, one in zip(numbers, after, strict=True)
        ),
    )
    raws = scratch.format_patch(base_id, commits[-1]) if commits else []
    return base_id, onto_id, commits, [patch_of(raw, f"up/{number}.patch") for number, raw in zip(numbers, raws, strict=True)]


def carried(scratch: Scratch, base: Tree, onto: Tree, after: list[Tree]) -> Carry:
    base_id, onto_id, _, patches = chain(scratch, base, onto, after)
    return engine.carry(scratch.objects, base_id, onto_id, patches)


ONE, TWO = {10: "one"}, {10: "one", 30: "two"}


@pytest.mark.parametrize(
    ("onto", "outcomes", "evidence"),
    [
        (tree(), [C, C], ["", ""]),
        (tree(b=b"upstream\n"), [C, C], ["", ""]),
        (tree(above=2), [M, M], ["now at a:9, was 7", "now at a:29, was 27"]),
        (tree({40: "far"}), [C, C], ["", ""]),
        (tree({26: "near", 34: "near"}), [C, C], ["", ""]),
        (tree({28: "beside"}), [C, C], ["", ""]),
        (tree({10: "one"}), [L, C], ["nothing left to change", ""]),
        (tree(TWO), [L, L], ["nothing left to change"] * 2),
        (tree({10: "other"}), [X, C], ["", ""]),
        (tree({10: "other", 30: "other"}), [X, X], ["", "may only follow from one/up/1.patch"]),
        (tree({30: "two"}), [C, L], ["", "nothing left to change"]),
        (tree(name="moved"), [M, M], ["now in moved, was a"] * 2),
        ({"b": (FILE, b"b\n")}, [X, X], ["", "may only follow from one/up/1.patch"]),
    ],
)
def test_outcomes(scratch: Scratch, onto: Tree, outcomes: list[Outcome], evidence: list[str]) -> None:
    done = carried(scratch, tree(), onto, [tree(ONE), tree(TWO)])
    assert [row.outcome for row in done.rows] == outcomes
    for row, wanted in zip(done.rows, evidence, strict=True):
        assert wanted in "; ".join(row.evidence)
        assert bool(wanted) == bool(row.evidence)
    assert done.complete == (X not in outcomes)
    living = {row.patch.ref.path for row in done.rows if row.outcome in (C, M)}
    assert done.exported.keys() == living
    assert all(row.conflicts if row.outcome is X else not row.conflicts for row in done.rows)


def test_a_conflict_and_what_comes_after_it(scratch: Scratch) -> None:
    """The conflict is left out; the patches after it stand on what could be carried before it."""
    after = [tree({5: "zero"}), tree({5: "zero", 20: "one"}), tree({5: "zero", 20: "one"}, c=b"new\n")]
    done = carried(scratch, tree(), tree({20: "upstream"}), after)
    assert [row.outcome for row in done.rows] == [C, X, C]
    [conflict] = done.rows[1].conflicts
    assert (conflict.path, conflict.lines) == ("a", (20, 20))
    assert done.rows[1].tree == done.rows[0].tree
    objects = scratch.objects
    found = objects.entry(objects.tree_of(done.tip), "a")
    assert found is not None
    assert objects.read(found.id) == text({5: "zero", 20: "upstream"})
    assert objects.entry(objects.tree_of(done.tip), "c") is not None


def test_what_a_person_resolved(scratch: Scratch) -> None:
    base, onto, _, patches = chain(scratch, tree(), tree({10: "upstream"}), [tree(ONE), tree(TWO)])
    [by_hand] = scratch.commits((tree({10: "one, upstream"}), None, "by hand\n"))
    objects = scratch.objects
    resolved = {step_name(patches[0].ref.path, onto): objects.tree_of(by_hand)}
    done = engine.carry(objects, base, onto, patches, resolved=resolved)
    assert [(row.outcome, row.by_hand) for row in done.rows] == [(C, True), (C, False)]
    assert "resolved by hand" in done.rows[0].evidence
    assert b"-upstream\n+one, upstream\n" in done.exported[patches[0].ref.path]
    landed = engine.carry(objects, base, onto, patches, resolved={step_name(patches[0].ref.path, onto): objects.tree_of(onto)})
    assert [(row.outcome, row.by_hand) for row in landed.rows] == [(Outcome.LEFT_OUT, True), (C, False)]


def test_a_patch_that_does_not_fit_the_base(scratch: Scratch) -> None:
    _, onto, _, patches = chain(scratch, tree(), tree({10: "other"}), [tree(ONE)])
    with pytest.raises(DoesNotApply, match="does not apply to its base"):
        engine.carry(scratch.objects, onto, onto, patches)


def test_no_patches(scratch: Scratch) -> None:
    done = carried(scratch, tree(), tree(above=1), [])
    assert (done.rows, done.tip, done.source_tip, done.complete) == ((), done.onto, done.base, True)


def test_headers_and_messages_stay_to_the_byte(scratch: Scratch) -> None:
    base, onto, _, patches = chain(scratch, tree(), tree(above=3), [tree(ONE), tree(TWO)])
    done = engine.carry(scratch.objects, base, onto, patches)
    for patch in patches:
        data = done.exported[patch.ref.path]
        assert data != patch.raw
        assert data.partition(b"\ndiff --git ")[0] == patch.raw.partition(b"\ndiff --git ")[0]
    again = [patch_of(done.exported[patch.ref.path], patch.ref.file) for patch in patches]
    back = engine.carry(scratch.objects, onto, base, again)
    assert [back.exported[patch.ref.path] for patch in patches] == [patch.raw for patch in patches]


def test_everyone_gets_the_same_commits(scratch: Scratch) -> None:
    results = []
    for _ in range(2):
        base, onto, _, patches = chain(scratch, tree(), tree(above=2), [tree(ONE), tree(TWO)])
        done = engine.carry(scratch.objects, base, onto, patches)
        results.append([row.commit for row in done.rows])
    assert results[0] == results[1]
    for commit in results[0]:
        fields = scratch.git("log", "-1", "--format=%an <%ae> %at%n%cn <%ce> %ct", str(commit)).decode().splitlines()
        assert fields[0] == fields[1]


@PROPERTY
@given(st.data())
@pytest.mark.slow
def test_the_same_as_git_rebase(scratch: Scratch, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    base = data.draw(trees(), "base")
    after = [base]
    for number in range(data.draw(st.integers(1, 4))):
        after.append(data.draw(changed(after[-1], most=2), f"after {number}"))
        assume(after[-1] != after[-2])
    onto = data.draw(changed(base, most=3), "onto")
    base_id, onto_id, commits, patches = chain(scratch, base, onto, after[1:])
    done = engine.carry(scratch.objects, base_id, onto_id, patches)
    folder = tmp_path_factory.mktemp("rebase")
    run = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "advice.detachedHead=false"]
    git.run(["clone", "--quiet", "--shared", "--no-checkout", str(scratch.repository), "."], cwd=folder)
    git.run([*run, "checkout", "--quiet", commits[-1]], cwd=folder)
    rebased = git.run([*run, "rebase", "--quiet", "--empty=drop", "--onto", onto_id, base_id], cwd=folder, accept=(0, 1))
    # git stops at the first of several patches that upstream has together only.
    assume(not any("together with" in line for row in done.rows for line in row.evidence))
    assert done.complete == (rebased.returncode == 0)
    if done.complete:
        assert git.text(["rev-parse", "HEAD^{tree}"], cwd=folder) == scratch.objects.tree_of(done.tip)
        kept = git.text(["log", "--reverse", "--format=%s", f"{onto_id}.."], cwd=folder).splitlines()
        assert kept == [row.patch.subject for row in done.rows if row.outcome is not L]
