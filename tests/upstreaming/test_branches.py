# SPDX-License-Identifier: Apache-2.0
"""Pull requests as commits: whose they are, what they say, what their trees hold, and that they are the same everywhere."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.carry.person import Person
from stack.model.ids import CommitId
from stack.model.pins import Pin, Within
from stack.store import git, remote, repository
from stack.store.objects import Identity, Objects
from stack.upstreaming.branches import build, message
from stack.upstreaming.proposal import Proposal
from tests.carry import trees
from tests.carry.trees import FILE, PROPERTY, Scratch, patch_of
from tests.carry.world import numbered
from tests.store.factories import Remote, listing

from .world import BASE, patch_between, proposal, worded

ME = Person("Jörg Me", "me@x")
HOOK = BASE | {"a.py": numbered("a", {10: "hook"})}
BOTH = HOOK | {"a.py": numbered("a", {10: "hook", 12: "more"})}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    place = tmp_path / "scratch"
    git.run(["init", "--quiet", "--bare", "--template=", str(place)])
    with Objects(place) as objects:
        yield Scratch(place, objects)


@pytest.fixture
def base(scratch: Scratch) -> CommitId:
    [commit] = scratch.commits(({path: (FILE, content) for path, content in BASE.items()}, None, "base\n"))
    return commit


def shown(scratch: Scratch, commit: str, form: str) -> str:
    return scratch.git("log", "-1", "--date=raw", f"--format={form}", commit).decode().strip("\n")


def on(scratch: Scratch, parent: CommitId, text: str) -> CommitId:
    """A commit that changes nothing."""
    who = Identity("X", "x@x", "1700000009 +0200")
    return scratch.objects.write_commit(scratch.tree(parent), (parent,), text, who)


def test_author_and_date_stay_and_the_person_commits(scratch: Scratch, base: CommitId, tmp_path: Path) -> None:
    patch = patch_between(tmp_path / "p", BASE, HOOK, "Hook a")
    [branch] = build(scratch.objects, [proposal(base, "hook", patch)], [], ME)
    assert branch.name == "pr/up/one-hook"
    assert shown(scratch, branch.tip, "%P %an <%ae> %ad") == f"{base} Jörg Writer <joerg@writer> 1700000000 +0000"
    assert shown(scratch, branch.tip, "%cn <%ce> %cd") == "Jörg Me <me@x> 1700000000 +0000"
    assert shown(scratch, branch.tip, "%B").splitlines()[-2:] == ["Signed-off-by: A Person <a@person>", f"Signed-off-by: {ME}"]
    assert scratch.git("fsck", "--strict", "--no-dangling") == b""


def test_no_commit_is_older_than_its_parent(scratch: Scratch, base: CommitId, tmp_path: Path) -> None:
    patch = patch_between(tmp_path / "p", BASE, HOOK, "Hook a")
    early = replace(patch, author=replace(patch.author, date="1600000000 -0700"))
    late = on(scratch, base, "late")
    [branch] = build(scratch.objects, [proposal(late, "hook", early)], [], ME)
    assert shown(scratch, branch.tip, "%ad") == "1600000000 -0700"
    assert shown(scratch, branch.tip, "%cd") == "1700000009 +0200"


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("Hook\n", f"Hook\n\nSigned-off-by: {ME}\n"),
        ("Hook\n\nWhy.\n", f"Hook\n\nWhy.\n\nSigned-off-by: {ME}\n"),
        (f"Hook\n\nSigned-off-by: {ME}\nAssisted-by: It\n", f"Hook\n\nSigned-off-by: {ME}\nAssisted-by: It\n"),
        ("Hook\n\nCo-authored-by: B <b@x>\n", f"Hook\n\nCo-authored-by: B <b@x>\nSigned-off-by: {ME}\n"),
        ("Hook\n\nStack-Series: one\nReviewed-by: B <b@x>\n", f"Hook\n\nReviewed-by: B <b@x>\nSigned-off-by: {ME}\n"),
        ("Hook\n\nStack-Patch: up/x.patch\n", f"Hook\n\nSigned-off-by: {ME}\n"),
        (f"Hook\n\nSaid `Signed-off-by: {ME}`.\n", f"Hook\n\nSaid `Signed-off-by: {ME}`.\n\nSigned-off-by: {ME}\n"),
    ],
)
def test_messages(tmp_path: Path, given: str, made: str) -> None:
    assert message(worded(patch_between(tmp_path / "p", BASE, HOOK, "Hook a"), given), ME) == made


def test_the_same_everywhere(scratch: Scratch, base: CommitId, tmp_path: Path) -> None:
    one = proposal(base, "hook", patch_between(tmp_path / "p", BASE, HOOK, "Hook a"))
    place = tmp_path / "other"
    git.run(["clone", "--quiet", "--bare", "--branch=x1", f"file://{scratch.repository}", str(place)])
    with Objects(place) as other:
        [there] = build(other, [one], [], ME)
    [here] = build(scratch.objects, [one], [], ME)
    assert here == there
    [others] = build(scratch.objects, [one], [], Person("Another", "me@x"))
    assert others.tip != here.tip


def test_what_is_needed_comes_first(scratch: Scratch, base: CommitId, tmp_path: Path) -> None:
    first = proposal(base, "first", patch_between(tmp_path / "1", BASE, HOOK, "First"))
    second = proposal(base, "second", patch_between(tmp_path / "2", HOOK, BOTH, "Second"), needs=("up/one-first",), wave=2)
    after = BOTH | {"b.py": numbered("b", {3: "third"})}
    third = proposal(base, "third", patch_between(tmp_path / "3", BOTH, after, "Third"), needs=("up/one-second",), wave=3)
    made = build(scratch.objects, [third, first], [third, second, first], ME)
    assert [len(branch.commits) for branch in made] == [3, 1]
    assert [shown(scratch, commit, "%s") for commit in made[0].commits] == ["First", "Second", "Third"]
    assert listing(scratch.repository, made[0].tip) == listing(
        scratch.repository, scratch.commits(({path: (FILE, content) for path, content in after.items()}, None, "x\n"))[0]
    )
    with pytest.raises(StackError, match="up/one-second needs up/one-first, which is not planned: plan both together"):
        build(scratch.objects, [third], [third, second], ME)


def test_what_is_needed_has_moved_lines_of_what_else_is(scratch: Scratch, base: CommitId, tmp_path: Path) -> None:
    """Two that touch neighbouring lines: git merges them, and neither's patch fits after the other."""
    near = BASE | {"a.py": numbered("a", {12: "near"})}
    both = BASE | {"a.py": numbered("a", {10: "hook", 12: "near"})}
    first = proposal(base, "first", patch_between(tmp_path / "1", BASE, HOOK, "First"))
    second = proposal(base, "second", patch_between(tmp_path / "2", BASE, near, "Second"))
    after = both | {"b.py": numbered("b", {3: "third"})}
    needs = ("up/one-first", "up/one-second")
    third = proposal(base, "third", patch_between(tmp_path / "3", both, after, "Third"), needs=needs, wave=2)
    [branch] = build(scratch.objects, [third], [first, second, third], ME)
    assert [shown(scratch, commit, "%s") for commit in branch.commits] == ["First", "Second", "Third"]
    assert scratch.git("show", f"{branch.tip}:a.py") == both["a.py"]
    assert scratch.git("show", f"{branch.tip}:b.py") == after["b.py"]


@pytest.mark.parametrize(
    ("series", "slug", "upstream"),
    [
        ("one", "x/../../main", "up"),
        ("one", "x..y", "up"),
        ("one", "x.lock", "up"),
        ("one", "x.", "up"),
        ("one", "x y", "up"),
        ("one", "x\n", "up"),
        ("one", "x" * 300, "up"),
        ("one", "x@{1}", "up"),
        ("-one", "x", "up"),
        ("", "x", "up"),
        ("one", "x", "../up"),
        ("one", "ü", "up"),
        ("one", "x:refs/heads/main", "up"),
    ],
)
def test_names_that_are_none(scratch: Scratch, base: CommitId, tmp_path: Path, series: str, slug: str, upstream: str) -> None:
    patch = patch_between(tmp_path / "p", BASE, HOOK, "Hook a")
    bad = replace(proposal(base, slug, patch), series=series, upstream=upstream)
    with pytest.raises(StackError, match="cannot be a part of a branch's name"):
        build(scratch.objects, [bad], [], ME)


def test_two_of_one_name(scratch: Scratch, base: CommitId, tmp_path: Path) -> None:
    patch = patch_between(tmp_path / "p", BASE, HOOK, "Hook a")
    one, other = replace(proposal(base, "b-c", patch), series="a"), replace(proposal(base, "c", patch), series="a-b")
    with pytest.raises(StackError, match="two pull requests are called up/a-b-c: rename a series or a patch"):
        build(scratch.objects, [one, other], [], ME)


def test_a_patch_that_does_not_fit(scratch: Scratch, base: CommitId, tmp_path: Path) -> None:
    patch = patch_between(tmp_path / "p", HOOK, BOTH, "More")
    with pytest.raises(StackError, match=r"one/up/more.patch of up/one-more does not apply on v1.0 \(a.py"):
        build(scratch.objects, [proposal(base, "more", patch)], [], ME)


def test_a_grafted_base_is_upstreams_own_commit(tmp_path: Path, home: Path) -> None:
    inside = Remote(tmp_path / "lib")
    inside.commit({"x.h": b"x\n"})
    upstream = Remote(tmp_path / "upstream")
    upstream.commit(BASE, submodules={"3rdparty/lib": inside.git("rev-parse", "HEAD")})
    upstream.tag("v1.0")
    store = repository.open(tmp_path / "cache", "up")
    commit = remote.fetch(store, upstream.url, "v1.0")
    pin = Pin("lib", inside.url, inside.git("rev-parse", "HEAD"), within=Within("up", "3rdparty/lib"))
    grafted = remote.graft(store, commit, [pin], pinned=True)
    assert grafted != commit
    with Objects(store) as objects:
        [branch] = build(objects, [proposal(grafted, "hook", patch_between(tmp_path / "p", BASE, HOOK, "Hook a"))], [], ME)
    assert branch.base == commit
    assert git.text(["diff", "--name-only", commit, branch.tip], cwd=store) == "a.py"


def test_what_only_looks_grafted_is_left_alone(scratch: Scratch, base: CommitId) -> None:
    text = "Vendored sources in place of submodules\n\nGrafted: x " + "1" * 40
    fake = on(scratch, base, text)
    assert remote.ungrafted(scratch.objects, fake) == fake


@PROPERTY
@given(st.data())
def test_random_series(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Each commit has exactly the tree that git gave the patch's own commit, whatever files are added, moved or made links."""
    states = [data.draw(trees.trees())]
    for _ in range(data.draw(st.integers(1, 4))):
        after = data.draw(trees.changed(states[-1]))
        states += [after] if after != states[-1] else []
    place = tmp_path_factory.mktemp("scratch") / "git"
    git.run(["init", "--quiet", "--bare", "--template=", str(place)])
    with Objects(place) as objects:
        scratch = Scratch(place, objects)
        texts = [data.draw(st.sampled_from(trees.SUBJECTS)) + "\n\n" + data.draw(st.sampled_from(trees.BODIES)) for _ in states]
        items = [
            (tree, number - 1 if number else None, text) for number, (tree, text) in enumerate(zip(states, texts, strict=True))
        ]
        commits = scratch.commits(*items)
        patches = [patch_of(raw) for raw in scratch.format_patch(commits[0], commits[-1])]
        if not patches:
            return
        cut = data.draw(st.integers(0, len(patches) - 1))
        base = commits[0]
        first = [proposal(base, "first", *patches[:cut])] if cut else []
        last = proposal(base, "last", *patches[cut:], needs=("up/one-first",) if cut else (), wave=2 if cut else 1)
        made: tuple[Proposal, ...] = (*first, last)
        branches = build(objects, made, made, ME)
        assert [scratch.tree(commit) for commit in branches[-1].commits] == [scratch.tree(commit) for commit in commits[1:]]
        assert all(scratch.tree(branch.tip) == scratch.tree(commits[cut]) for branch in branches[:-1])
        assert scratch.git("fsck", "--strict", "--no-dangling") == b""
