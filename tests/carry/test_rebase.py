# SPDX-License-Identifier: Apache-2.0
"""Moving the stack to other releases: what is switched, what is refused, and that undo brings it all back."""

from dataclasses import replace

import pytest

from stack.base.errors import StackError
from stack.carry import lint, rebase
from stack.carry.outcome import Outcome
from stack.carry.rebase import Conclusion, Rebase, Request, conclude
from stack.model import switch
from stack.model.ids import CommitId
from stack.model.pins import Source

from .world import GAMMA_PATCHES, PATCHES, World

OUTCOMES = {
    "one/gamma/hook-main.patch": Outcome.CLEAN,
    "one/gamma/tool-flag.patch": Outcome.MOVED,
    "two/gamma/fix-limit.patch": Outcome.LANDED,
    "one/alpha/core-switch.patch": Outcome.MOVED,
    "two/alpha/open-header.patch": Outcome.CLEAN,
    "two/beta/wide-load.patch": Outcome.CLEAN,
}


def work(world: World, upstream: str, tag: str, *, with_required: bool = False, source: Source = "archive") -> Rebase:
    with world.stores(source) as stores:
        return rebase.rebase(stores, Request(upstream, tag, with_required))


def outcomes(done: Rebase) -> dict[str, Outcome]:
    return {row.patch.ref.path: row.outcome for row in done.rows()}


def test_all_that_belongs_together_switches_together(world: World) -> None:
    before = world.files()
    done = work(world, "gamma", "v2.1", with_required=True)
    assert outcomes(done) == OUTCOMES
    assert [(leg.upstream, leg.moves) for leg in done.legs] == [("gamma", True), ("alpha", True), ("beta", False)]
    assert conclude(done) is Conclusion.SWITCHED

    after = world.files()
    gone = "stacks/two/gamma/fix-limit.patch"
    same = {f"stacks/{path}" for path in ("two/beta/wide-load.patch",)} | {"stacks/stack.toml", "stacks/one/series.toml"}
    assert before.keys() - after.keys() == {gone}
    assert {path for path in after if after[path] == before[path]} >= same
    # pins.toml and pyproject.toml: only the values changed.
    pins = {pin.upstream: pin for pin in world.load().pins}
    old = {pin.upstream: pin for pin in done.stack.pins}
    wanted = before["pins.toml"].decode()
    for name in ("alpha", "gamma"):
        was, now = old[name], pins[name]
        assert was.archive is not None
        assert now.archive is not None
        pairs = [(was.tag, now.tag), (was.commit, now.commit), (was.tree, now.tree)]
        pairs += [
            (was.archive.sha256, now.archive.sha256),
            (f'version = "{was.archive.version}"', f'version = "{now.archive.version}"'),
        ]
        for one, other in pairs:
            wanted = wanted.replace(str(one), str(other))
    assert after["pins.toml"].decode() == wanted
    assert pins["beta"] == old["beta"]
    assert world.commits["alpha v1.1"] == pins["alpha"].commit
    assert world.commits["gamma v2.1"][:9] == pins["gamma"].commit
    extras = before["pyproject.toml"].decode().replace("gamma-pkg==2.0", "gamma-pkg==2.1")
    assert after["pyproject.toml"].decode() == extras.replace("alpha-pkg[gpu]==1.0", "alpha-pkg[gpu]==1.1")
    # Of the patch that has landed, its proof needs to know on which release it was carried.
    kept = b'landed = [\n    {file = "gamma/fix-limit.patch", release = "v2.1", before = "v2.0"},\n]\n'
    assert kept in after["stacks/two/series.toml"]
    assert before["stacks/two/series.toml"].startswith(after["stacks/two/series.toml"].replace(kept, b"").rstrip())

    with world.stores() as stores:
        assert lint.lint(stores) == ()
    assert conclude(work(world, "gamma", "v2.1", with_required=True)) is Conclusion.UNCHANGED
    switch.undo(world.root)
    assert world.files() == before


def test_a_dry_run_and_a_conflict_write_nothing(world: World) -> None:
    before = world.files()
    assert conclude(work(world, "gamma", "v2.1", with_required=True), dry_run=True) is Conclusion.DRY_RUN
    assert conclude(work(world, "gamma", "v2.2", with_required=True), allow_mismatch=True) is Conclusion.CONFLICT
    assert world.files() == before
    assert not (world.root / ".stack").exists()


def test_pins_that_do_not_belong_together(world: World) -> None:
    before = world.files()
    done = work(world, "gamma", "v2.1")
    [need] = done.unmet
    assert need.sentence(done.pins().get("alpha")) == "gamma v2.1 names Alpha_Pkg==1.1 (requirements/cuda.txt), the pin is 1.0"
    assert conclude(done) is Conclusion.MISMATCH
    assert world.files() == before
    assert conclude(done, allow_mismatch=True) is Conclusion.SWITCHED
    with world.stores() as stores:
        problems = [(found.place, found.problem) for found in lint.lint(stores)]
    assert problems == [("pins.toml", "gamma v2.1 names Alpha_Pkg==1.1 (requirements/cuda.txt), the pin is 1.0")]
    # Also where the other one moves away from what is named.
    switch.undo(world.root)
    [need] = work(world, "alpha", "v1.1").unmet
    assert (need.upstream, need.version) == ("gamma", "1.0")


def test_with_required_and_nothing_required(world: World) -> None:
    done = work(world, "gamma", "v2.0", with_required=True)
    assert conclude(done) is Conclusion.UNCHANGED
    assert set(outcomes(done).values()) == {Outcome.CLEAN}
    assert [leg.upstream for leg in done.legs] == ["gamma"]


def test_conflicts_name_path_and_lines_and_what_follows(world: World) -> None:
    done = work(world, "gamma", "v2.2", with_required=True)
    rows = {row.patch.ref.path: row for row in done.rows()}
    conflicts = {path: [(one.path, one.lines) for one in row.conflicts] for path, row in rows.items() if row.conflicts}
    assert conflicts == {
        "one/gamma/hook-main.patch": [("gamma/main.py", (10, 10))],
        "two/gamma/fix-limit.patch": [("gamma/main.py", (30, 30))],
        "one/alpha/core-switch.patch": [("alpha/core.py", (10, 10))],
    }
    assert rows["two/gamma/fix-limit.patch"].evidence == ("may only follow from one/gamma/hook-main.patch",)
    assert rows["one/gamma/hook-main.patch"].evidence == rows["one/alpha/core-switch.patch"].evidence == ()
    assert {path for path, row in rows.items() if row.outcome is Outcome.CLEAN} == PATCHES_WITHOUT_CONFLICT
    leg, row = done.open[0]
    assert (leg.upstream, row.patch.ref.path, row.tip) == ("gamma", "one/gamma/hook-main.patch", leg.carry.onto)


PATCHES_WITHOUT_CONFLICT = {"one/gamma/tool-flag.patch", "two/alpha/open-header.patch", "two/beta/wide-load.patch"}


def test_vendored_patches_stand_on_the_holders(world: World) -> None:
    """beta's patch has a line of alpha's patch in its context; and it lands below the folder."""
    done = work(world, "alpha", "v1.1")
    alpha, beta = done.legs
    with world.stores() as stores:
        objects = stores.objects("beta")
        holder = objects.entry(objects.tree_of(alpha.carry.tip), "3rd/beta")
        assert holder is not None
        assert objects.tree_of(beta.carry.onto) == holder.id
        entry = objects.entry(objects.tree_of(beta.carry.tip), "include/b.h")
        assert entry is not None
        lines = objects.read(entry.id).decode().splitlines()
    assert [line for line in lines if not line.startswith("header")] == ["open", "wide"]


def test_a_vendored_folder_that_changed(world: World) -> None:
    """An archive cannot say which commit it vendors; git can."""
    before = world.files()
    with pytest.raises(StackError, match=r"alpha v1\.2 vendors another beta, .* name the commit: use --source git"):
        work(world, "alpha", "v1.2")
    assert world.files() == before
    done = work(world, "alpha", "v1.2", source="git")
    assert conclude(done, allow_mismatch=True) is Conclusion.SWITCHED
    pin = world.load().pins.get("beta")
    assert pin.commit == world.commits["b3"]
    assert pin.subtrees.keys() == {"include"}
    assert pin.subtrees["include"] != done.stack.pins.get("beta").subtrees["include"]
    assert "# 4.5" in world.read("pins.toml")


def test_the_git_source_gives_the_same_patches(world: World) -> None:
    by_archive = work(world, "gamma", "v2.1", with_required=True)
    by_git = work(world, "gamma", "v2.1", with_required=True, source="git")
    assert [leg.carry.exported for leg in by_git.legs] == [leg.carry.exported for leg in by_archive.legs]
    assert outcomes(by_git) == OUTCOMES
    assert conclude(by_git) is Conclusion.SWITCHED
    pins = world.load().pins
    assert pins.get("beta").commit == world.commits["b2"]
    assert pins.get("beta").subtrees == by_git.stack.pins.get("beta").subtrees
    assert pins.get("alpha").commit == world.commits["alpha v1.1"]
    assert pins.get("gamma").commit == world.commits["gamma v2.1"]
    assert pins.get("alpha").tree is None


@pytest.mark.parametrize(
    ("upstream", "tag", "message"),
    [
        ("beta", "v1", "beta is vendored in alpha: rebase alpha, and it comes along"),
        ("delta", "v1", "unknown upstream 'delta': pins.toml has gamma, alpha, beta"),
        ("alpha", "v9", "no source archive of alpha-pkg 9"),
        ("alpha", "main", "the tag 'main' names no version"),
    ],
)
def test_refused(world: World, upstream: str, tag: str, message: str) -> None:
    before = world.files()
    with pytest.raises(StackError) as raised:
        work(world, upstream, tag)
    assert str(raised.value).startswith(message)
    assert world.files() == before


def test_an_archive_that_names_no_commit_gets_that_of_its_tag(world: World) -> None:
    assert work(world, "alpha", "v1.4").pins().get("alpha").commit == world.commits["alpha v1.4"]


def test_neither_the_archive_nor_the_remote_names_the_commit(world: World) -> None:
    git_address = world.load().pins.get("alpha").git
    world.edit("pins.toml", git_address, f"{git_address}-gone")
    before = world.files()
    with pytest.raises(StackError, match=r"neither the source archive of alpha v1.4 nor .* names its commit: use --source git"):
        work(world, "alpha", "v1.4")
    assert world.files() == before


def test_a_patch_that_does_not_fit_its_own_pin(world: World) -> None:
    world.edit("stacks/one/gamma/hook-main.patch", "-main 10\n", "-main ten\n")
    with pytest.raises(StackError, match=r"patch one/gamma/hook-main.patch does not apply to its base \(gamma/main.py:7: "):
        work(world, "gamma", "v2.1")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("stacks/one/gamma/tool-flag.patch", "Why it", "Why else it"),
        ("stacks/two/series.toml", 'title = "Two"', 'title = "Two of two"'),
        ("pins.toml", "# A comment at the end.", "[base]\nimage='x'\ntag='y'"),
        ("pins.toml", "v2.0", "v2.2"),
        ("stacks/two/series.toml", 'needs = ["one"]', "needs = []"),
    ],
)
def test_a_stack_that_changed_meanwhile(world: World, path: str, old: str, new: str) -> None:
    """What another command or an editor wrote in between is never overwritten with what was read before."""
    done = work(world, "gamma", "v2.1", with_required=True)
    world.edit(path, old, new)
    changed = world.files()
    with pytest.raises(StackError, match="was changed while this command ran: nothing was written: run it again"):
        conclude(done)
    assert world.files() == changed


def test_comments_that_changed_meanwhile_stay(world: World) -> None:
    done = work(world, "gamma", "v2.1", with_required=True)
    for path, old, new in (
        ("stacks/two/series.toml", 'needs = ["one"]', 'needs = ["one"] # a word'),
        ("pins.toml", "comment at the end", "comment by another"),
        ("pyproject.toml", "==0.1", "==0.2"),
    ):
        world.edit(path, old, new)
    assert conclude(done) is Conclusion.SWITCHED
    assert "# a word" in world.read("stacks/two/series.toml")
    assert "comment by another" in world.read("pins.toml")
    assert "==0.2" in world.read("pyproject.toml")


def test_range_diff(world: World) -> None:
    with world.stores() as stores:
        done = rebase.rebase(stores, Request("gamma", "v2.1", with_required=True))
        text = rebase.range_diff(stores, done.legs[0])
        assert [line.split(":", 1)[0] + line.split()[2] for line in text.splitlines() if line[:1].isdigit()] == [
            "1=",
            "2=",
            "3<",
        ]
        assert "\x1b[" not in text
        assert "\x1b[" in rebase.range_diff(stores, done.legs[0], colour=True)
        assert rebase.range_diff(stores, replace(done.legs[0], carry=replace(done.legs[0].carry, sources=()))) == ""


def test_pins_alone(world: World) -> None:
    before = world.files()
    with world.stores() as stores:
        new, unmet = rebase.repinned(stores, "gamma", "v2.1")
        assert not rebase.set_pins(stores.stack, new, unmet, title="pins set", allow_mismatch=False)
        assert world.files() == before
        assert rebase.set_pins(stores.stack, new, unmet, title="pins set", allow_mismatch=True)
    assert {path for path, content in world.files().items() if content != before[path]} == {"pins.toml", "pyproject.toml"}
    assert world.load().pins == new
    with world.stores() as stores, pytest.raises(StackError, match="set alpha, and it comes along"):
        rebase.repinned(stores, "beta", "v1")
    switch.undo(world.root)
    assert world.files() == before


def test_the_stack_on_no_patches(world: World) -> None:
    """A rebase with nothing to carry moves the pin alone."""
    for path in GAMMA_PATCHES:
        (world.root / "stacks" / path).unlink()
        name, upstream, file = path.split("/")
        entry = f'[[patch]]\nupstream = "{upstream}"\nfile = "{upstream}/{file}"\n'
        world.edit(f"stacks/{name}/series.toml", entry, "")
    done = work(world, "gamma", "v2.1")
    assert outcomes(done) == {}
    assert isinstance(done.legs[0].carry.tip, str)
    assert done.legs[0].carry.tip == CommitId(done.legs[0].carry.onto)
    assert conclude(done, allow_mismatch=True) is Conclusion.SWITCHED
    assert len(world.load().patches) == len(PATCHES) - len(GAMMA_PATCHES)


def test_a_patch_is_looked_for_by_its_own_pull_requests_and_its_series(world: World) -> None:
    address = "https://github.com/up/gamma/pull"
    world.edit(
        "stacks/one/series.toml", 'file = "gamma/hook-main.patch"', f'file = "gamma/hook-main.patch"\npull = "{address}/7"'
    )
    world.edit("stacks/one/series.toml", 'state = "pending"', f'state = "submitted"\npull = "{address}/9"')
    world.edit(
        "stacks/two/series.toml",
        'file = "beta/wide-load.patch"',
        f'file = "beta/wide-load.patch"\npull = ["{address}/1", "{address}/2"]',
    )
    assert rebase._pulls(world.load()) == {
        "one/gamma/hook-main.patch": {7, 9},
        "one/alpha/core-switch.patch": {9},
        "one/gamma/tool-flag.patch": {9},
        "two/beta/wide-load.patch": {1, 2},
    }
