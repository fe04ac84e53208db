# SPDX-License-Identifier: Apache-2.0
"""`stack image bisect` as a user runs it, on a small world of upstreams."""

import shutil
from pathlib import Path

import pytest

from stack.store import git

from ..carry.world import World
from .conftest import Ran, Stack
from .test_verbs import parsed


@pytest.fixture
def bad(world: World, tmp_path: Path) -> Path:
    """A copy of the stack, to be made bad."""
    return Path(shutil.copytree(world.root, tmp_path / "bad"))


def drop(root: Path, series: str, file: str) -> None:
    """Take a patch out of a stack."""
    (root / "stacks" / series / file).unlink()
    listed = root / "stacks" / series / "series.toml"
    parts = listed.read_text().split("[[patch]]")
    listed.write_text("[[patch]]".join(part for part in parts if f'"{file}"' not in part))


def bisect(stack: Stack, *args: object, run: str) -> Ran:
    return stack("image", "bisect", *args, "--run", run)


def test_a_patch_that_was_dropped(stack: Stack, world: World, bad: Path) -> None:
    for series, file in (("one", "gamma/tool-flag.patch"), ("two", "gamma/fix-limit.patch"), ("two", "beta/wide-load.patch")):
        drop(bad, series, file)
    ran = bisect(stack, world.root, bad, run='test -e "$STACK_ROOT/stacks/two/beta/wide-load.patch"')
    assert ran.code == 0, ran
    assert ran.out.splitlines()[:2] == ["good     the good stack", "bad      the bad stack"]
    assert ran.out.splitlines()[-1] == "the first bad change: two/beta/wide-load.patch dropped"


def test_a_patch_that_was_added_or_changed(stack: Stack, world: World, bad: Path) -> None:
    changed = bad / "stacks/one/gamma/hook-main.patch"
    changed.write_bytes(changed.read_bytes().replace(b"Why it is needed.", b"Why it is needed now."))
    drop(world.root, "two", "gamma/fix-limit.patch")
    found = parsed(bisect(stack, world.root, bad, "--json", run="! grep -q now. $STACK_ROOT/stacks/one/gamma/hook-main.patch"))
    assert found["first_bad"] == ["one/gamma/hook-main.patch changed"]
    assert found["between"] == ["one/gamma/hook-main.patch changed", "two/gamma/fix-limit.patch added"]
    assert [trial["answer"] for trial in found["trials"]] == ["good", "bad", "bad"]
    added = bisect(stack, world.root, bad, run="test ! -e $STACK_ROOT/stacks/two/gamma/fix-limit.patch")
    assert added.out.splitlines()[-1] == "the first bad change: two/gamma/fix-limit.patch added"


def test_a_release_of_an_upstream(stack: Stack, world: World, bad: Path) -> None:
    """alpha v1.2 vendors what its archive does not name, so it cannot be made; v1.3 conflicts without what is dropped here."""
    for root in (world.root, bad):
        drop(root, "one", "alpha/core-switch.patch")
    assert stack("rebase", "alpha", "--onto", "v1.3", "--allow-mismatch", root=bad).code == 0
    drop(bad, "one", "gamma/tool-flag.patch")
    ran = bisect(stack, world.root, bad, run="! grep -q 'tag = .v1.[13]' $STACK_ROOT/pins.toml")
    assert ran.out.splitlines()[-1] == "the first bad change: alpha v1.1"
    ran = bisect(stack, world.root, bad, run="! grep -q 'tag = .v1.3' $STACK_ROOT/pins.toml")
    assert "skipped  alpha v1.2 (alpha v1.2 vendors another beta" in ran.out
    assert ran.out.splitlines()[-1] == "one of these, which could not be judged separately: alpha v1.2; alpha v1.3"
    # The boundary between pins and patches is asked first: here it is good, so no release is looked at.
    ran = bisect(stack, world.root, bad, run="test -e $STACK_ROOT/stacks/one/gamma/tool-flag.patch")
    assert [line[:18] for line in ran.out.splitlines()[2:]] == ["good     alpha v1.", "the first bad chan"]
    assert ran.out.splitlines()[-1] == "the first bad change: one/gamma/tool-flag.patch dropped"


def test_patches_that_do_not_go_where_the_bad_stack_is(stack: Stack, world: World, bad: Path) -> None:
    """core-switch conflicts on alpha v1.3; what comes after v1.2 is one step."""
    drop(bad, "one", "alpha/core-switch.patch")
    assert stack("rebase", "alpha", "--onto", "v1.3", "--allow-mismatch", root=bad).code == 0
    found = parsed(bisect(stack, world.root, bad, "--json", run="! grep -q 'tag = .v1.3' $STACK_ROOT/pins.toml"))
    whole = "one/alpha/core-switch.patch cannot be carried to alpha v1.3: the remaining pins and all patches at once"
    assert found["between"] == ["alpha v1.1", "alpha v1.2", "alpha v1.3", whole]
    assert found["first_bad"] == ["alpha v1.2", "alpha v1.3", whole]


def test_revisions_of_the_stack(stack: Stack, world: World) -> None:
    def commit(message: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@a"]
        git.run(["-C", str(world.root), "add", "--all"])
        git.run(["-C", str(world.root), *who, "commit", "--quiet", "--message", message])

    git.run(["init", "--quiet", str(world.root)])
    commit("good")
    drop(world.root, "one", "gamma/tool-flag.patch")
    commit("bad")
    ran = bisect(stack, "HEAD~1", "HEAD", run="test -e $STACK_ROOT/stacks/one/gamma/tool-flag.patch")
    assert ran.out.splitlines()[-1] == "the first bad change: one/gamma/tool-flag.patch dropped"


@pytest.mark.parametrize(
    ("ends", "run", "said"),
    [
        (("good", "nowhere"), "true", "nowhere is not a stack's folder, an image, or a revision of"),
        (("good", "--output=x"), "true", "unknown option"),
        (("good", "good"), "true", "the bad stack is not bad: the command says good"),
        (("good", "good"), "false", "the good stack is not good: the command says bad"),
        (("good", "bad"), "exit 125", "the good stack is not good: the command says skipped"),
        (("good", "bad"), "kill -9 $$", "the command ended with signal 9"),
        (("good", "bad"), "no-such-command", "the command ended with exit code 127"),
        (("good", "good", "--trust"), "true", "GOOD and BAD are the same stack"),
    ],
)
def test_what_cannot_be_halved(stack: Stack, world: World, bad: Path, ends: tuple[str, ...], run: str, said: str) -> None:
    drop(bad, "one", "gamma/tool-flag.patch")
    places = {"good": world.root, "bad": bad}
    ran = bisect(stack, *(places.get(end, end) for end in ends), run=run)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert said in ran.err


def test_only_stacks_of_the_same_upstreams(stack: Stack, world: World, bad: Path) -> None:
    text = (bad / "pins.toml").read_text()
    (bad / "pins.toml").write_text(text.replace("[gamma]", "[delta]"))
    shutil.rmtree(bad / "stacks/two")
    shutil.rmtree(bad / "stacks/one")
    (bad / "stacks/stack.toml").write_text("series = []\n")
    assert "only stacks of the same upstreams" in bisect(stack, world.root, bad, "--trust", run="true").refused()
