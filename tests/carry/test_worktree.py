# SPDX-License-Identifier: Apache-2.0
"""Out to a working tree with `stack checkout`, the user's own git there, and back with `stack refresh`."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import lint, trailers, worktree
from stack.carry.worktree import Refreshed
from stack.model import switch

from .world import ALPHA_PATCHES, GAMMA_PATCHES, World, numbered

HOOK, FLAG, LIMIT = GAMMA_PATCHES
# What a full disk, an editor or another program leaves of a record.
DAMAGED = {
    "empty": b"",
    "half": b"{",
    "list": b"[]",
    "nothing in it": b"{}",
    "number": b"1",
    "null": b"null",
    "not UTF-8": b'{"upstream": "\xff"}',
    "nested deeply": b"[" * 100_000,
    "one key": b'{"upstream": "gamma"}',
}


@pytest.fixture
def folder(world: World, tmp_path: Path) -> Path:
    """A working tree of gamma."""
    place = tmp_path / "gamma"
    with world.stores() as stores:
        worktree.checkout(stores, "gamma", place)
    return place


def user_git(folder: Path, *args: str, env: Mapping[str, str] | None = None, stdin: str | bytes = "") -> str:
    """Git as the user runs it: with all of its configuration."""
    who = {"GIT_AUTHOR_NAME": "U", "GIT_AUTHOR_EMAIL": "u@u", "GIT_COMMITTER_NAME": "U", "GIT_COMMITTER_EMAIL": "u@u"}
    done = subprocess.run(
        ["git", *args],
        cwd=folder,
        env=os.environ | who | {"GIT_EDITOR": "true"} | dict(env or {}),
        input=stdin if isinstance(stdin, bytes) else stdin.encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode("utf-8", "replace").strip()


def rebase_i(folder: Path, script: str) -> None:
    """`git rebase -i` with a todo list that sed edits."""
    user_git(folder, "rebase", "-q", "-i", worktree.BASE_TAG, env={"GIT_SEQUENCE_EDITOR": f"sed -i -e '{script}'"})


def commit(folder: Path, path: str, content: bytes, *args: str) -> None:
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_bytes(content)
    user_git(folder, "add", "--", path)
    user_git(folder, "commit", "-q", "-s", *args)


def refresh(world: World, folder: Path, upstream: str = "gamma") -> Refreshed:
    with world.stores() as stores:
        found = worktree.refresh(stores, upstream, folder)
        worktree.write_back(stores.stack, folder, found, title=f"refresh {upstream}")
    with world.stores() as stores:
        assert lint.lint(stores) == ()
    return found


def names(refs: object) -> list[str]:
    assert isinstance(refs, tuple)
    return [ref.path for ref in refs]


def listed(world: World) -> list[str]:
    return [ref.path for one in world.load().series for ref in one.patches]


OTHERS = [*ALPHA_PATCHES, "two/beta/wide-load.patch"]
MAIN = numbered("main", {10: "hook", 30: "limit, fixed"})


@pytest.mark.parametrize("upstream", ["gamma", "alpha", "beta"])
def test_unchanged_keeps_every_byte(world: World, tmp_path: Path, upstream: str) -> None:
    before = world.files()
    with world.stores() as stores:
        tip = worktree.checkout(stores, upstream, tmp_path / "tree")
    patches = world.load().order(upstream)
    assert user_git(tmp_path / "tree", "rev-parse", "HEAD", "stack") == f"{tip}\n{tip}"
    assert user_git(tmp_path / "tree", "status", "--porcelain") == ""
    log = "--format=%s|%(trailers:key=Stack-Series,valueonly,separator=)|%(trailers:key=Stack-Patch,valueonly,separator=)"
    assert user_git(tmp_path / "tree", "log", "--reverse", log, f"{worktree.BASE_TAG}..").splitlines() == [
        f"{patch.subject}|{patch.ref.series}|{patch.ref.file}" for patch in patches
    ]
    found = refresh(world, tmp_path / "tree", upstream)
    assert names(found.kept) == [patch.ref.path for patch in patches]
    assert found.patches == found.kept
    assert world.files() == before
    assert not (world.root / ".stack/history").exists() or not switch.history(world.root)


def test_a_vendored_upstream_shows_its_own_paths_on_the_holders_patches(world: World, tmp_path: Path) -> None:
    with world.stores() as stores:
        worktree.checkout(stores, "beta", tmp_path / "beta")
    assert sorted(path.name for path in (tmp_path / "beta").iterdir()) == [".git", "README", "include"]
    user_git(tmp_path / "beta", "checkout", "-q", worktree.BASE_TAG)
    assert b"open\n" in (tmp_path / "beta/include/b.h").read_bytes()


def test_the_first_command_on_an_empty_cache(world: World, tmp_path: Path) -> None:
    shutil.rmtree(world.cache)
    before = world.files()
    with world.stores() as stores:
        worktree.checkout(stores, "gamma", tmp_path / "gamma")
    refresh(world, tmp_path / "gamma")
    assert world.files() == before


def test_it_lives_without_the_store(world: World, folder: Path) -> None:
    shutil.rmtree(world.cache)
    assert user_git(folder, "fsck", "--strict") == ""
    commit(folder, "gamma/main.py", MAIN + b"more\n", "-m", "More", "--trailer", "Stack-Series: two")
    assert names(refresh(world, folder).added) == ["two/gamma/more.patch"]


def test_the_git_source_works_the_same(world: World, tmp_path: Path) -> None:
    before = world.files()
    with world.stores("git") as stores:
        worktree.checkout(stores, "alpha", tmp_path / "alpha")
    assert user_git(tmp_path / "alpha", "log", "--format=%s", worktree.BASE_TAG).splitlines()[-1] == "v1.0"
    commit(tmp_path / "alpha", "new", b"new\n", "-m", "New", "--trailer", "Stack-Series: one")
    with world.stores("git") as stores:
        user_git(tmp_path / "alpha", "reset", "-q", "--hard", "HEAD~1")
        found = worktree.refresh(stores, "alpha", tmp_path / "alpha")
    assert names(found.kept) == list(ALPHA_PATCHES)
    assert world.files() == before
    with (
        world.stores() as stores,
        pytest.raises(StackError, match="was checked out with --source git: leave --source out"),
    ):
        worktree.refresh(stores, "alpha", tmp_path / "alpha")


def test_amended(world: World, folder: Path) -> None:
    (folder / "gamma/main.py").write_bytes(MAIN + b"amended\n")
    user_git(folder, "commit", "-q", "-a", "--amend", "--no-edit")
    found = refresh(world, folder)
    assert (names(found.kept), names(found.changed)) == ([HOOK, FLAG], [LIMIT])
    assert "+amended" in world.read(f"stacks/{LIMIT}")
    assert "Stack-" not in world.read(f"stacks/{LIMIT}")
    assert "From: =?UTF-8?q?J=C3=B6rg" in world.read(f"stacks/{LIMIT}")


def test_reworded_keeps_its_file(world: World, folder: Path) -> None:
    message = user_git(folder, "log", "-1", "--format=%B").replace("Fix limit", "Repair the limit")
    user_git(folder, "commit", "-q", "--amend", "-F", "-", stdin=message)
    assert names(refresh(world, folder).changed) == [LIMIT]
    assert "Subject: [PATCH] Repair the limit\n\nWhy it is needed.\n\nSigned-off-by: A Person" in world.read(f"stacks/{LIMIT}")


def test_reordered_within_a_series(world: World, folder: Path) -> None:
    rebase_i(folder, "1{h;d};2{G}")
    found = refresh(world, folder)
    assert names(found.kept) == [FLAG, HOOK, LIMIT]
    assert listed(world)[:3] == [FLAG, "one/alpha/core-switch.patch", HOOK]
    assert world.read("stacks/one/series.toml").startswith("# Why this series is first.\n")


def test_an_order_that_commutes(world: World, folder: Path) -> None:
    """Commits of the first series above one of the second: they are put below it, and the result is the same."""
    commit(folder, "gamma/new.py", b"new\n", "-m", "New", "--trailer", "Stack-Series: one")
    edited = MAIN.replace(b"main 20\n", b"twenty\n")
    commit(folder, "gamma/main.py", edited, "-m", "Twenty", "--trailer", "Stack-Series: one")
    found = refresh(world, folder)
    assert (names(found.kept), names(found.changed)) == ([HOOK, FLAG], [LIMIT])
    assert [path for path in listed(world) if "/gamma/" in path] == [
        HOOK,
        FLAG,
        "one/gamma/new.patch",
        "one/gamma/twenty.patch",
        LIMIT,
    ]
    again = refresh(world, folder)
    assert (again.changed, again.added, again.dropped) == ((), (), ())
    with world.stores() as stores:
        objects = stores.objects("gamma")
        assert objects.tree_of(stores.tip("gamma")) == user_git(folder, "rev-parse", "HEAD^{tree}")


def test_the_first_needs_what_the_second_adds(world: World, folder: Path) -> None:
    commit(folder, "gamma/new.py", b"new\n", "-m", "Add", *TRAILER)
    commit(folder, "gamma/new.py", b"newer\n", "-m", "Change", "--trailer", "Stack-Series: one")
    with world.stores() as stores, pytest.raises(StackError) as refused:
        worktree.refresh(stores, "gamma", folder)
    assert re.match(
        r"commit \w{12} \(Change\) of one needs \w{12} \(Add\) of two, which comes later .* both change gamma/new.py:",
        str(refused.value),
    )


def test_dropped(world: World, folder: Path) -> None:
    before = world.files()
    rebase_i(folder, "2d")
    found = refresh(world, folder)
    assert names(found.dropped) == [FLAG]
    assert FLAG not in listed(world)
    assert not (world.root / "stacks" / FLAG).exists()
    assert listed(world)[0] == HOOK
    switch.undo(world.root)
    assert world.files() == before


def test_all_dropped(world: World, tmp_path: Path) -> None:
    with world.stores() as stores:
        worktree.checkout(stores, "beta", tmp_path / "beta")
    user_git(tmp_path / "beta", "reset", "-q", "--hard", worktree.BASE_TAG)
    assert names(refresh(world, tmp_path / "beta", "beta").dropped) == ["two/beta/wide-load.patch"]
    assert not (world.root / "stacks/two/beta").exists()


def test_added(world: World, folder: Path) -> None:
    commit(folder, "gamma/new ñ.py", b"new\n", "-m", "[New] Ein neues Stück!", "--trailer", "Stack-Series: two")
    found = refresh(world, folder)
    [path] = names(found.added)
    assert path.startswith("two/gamma/ein-neues-st")
    assert listed(world)[-1] == path
    assert listed(world)[:-1] == sorted(listed(world)[:-1], key=listed(world).index)
    commit(folder, "gamma/other.py", b"new\n", "-m", "[New] Ein neues Stück!", "--trailer", "Stack-Series: two")
    again = refresh(world, folder)
    assert path in names(again.kept)
    assert len(names(again.added)) == 1


def test_split(world: World, folder: Path) -> None:
    """Both halves of a split commit carry the old one's trailers, as `git reset HEAD^; git commit -c ORIG_HEAD` leaves them."""
    user_git(folder, "reset", "-q", "HEAD^")
    user_git(folder, "commit", "-q", "-a", "-C", "ORIG_HEAD")
    commit(folder, "gamma/second.py", b"second\n", "-C", "ORIG_HEAD")
    message = user_git(folder, "log", "-1", "--format=%B").replace("Fix limit", "Second half")
    user_git(folder, "commit", "-q", "--amend", "-F", "-", stdin=message)
    found = refresh(world, folder)
    assert names(found.kept) == [HOOK, FLAG, LIMIT]
    assert names(found.added) == ["two/gamma/second-half.patch"]


@pytest.mark.parametrize("verb", ["fixup", "squash"])
def test_two_become_one(world: World, folder: Path, verb: str) -> None:
    """The first of the two lives on; nothing of the other's trailers stays in the message."""
    rebase_i(folder, f"2s/pick/{verb}/")
    found = refresh(world, folder)
    assert (names(found.kept), names(found.changed), names(found.dropped)) == ([LIMIT], [HOOK], [FLAG])
    text = world.read(f"stacks/{HOOK}")
    assert "+hook" in text
    assert "+flag" in text
    assert "Stack-" not in text
    assert ("Flag für" in text) == (verb == "squash")


def test_moved_to_another_series_by_trailer(world: World, folder: Path) -> None:
    """`git commit --amend --trailer` adds a second one below the first: the last one holds."""
    rebase_i(folder, '2a exec git commit -q --amend --no-edit --trailer "Stack-Series: two"')
    found = refresh(world, folder)
    assert names(found.added) == ["two/gamma/tool-flag.patch"]
    assert names(found.dropped) == [FLAG]
    assert listed(world)[-2:] == ["two/gamma/tool-flag.patch", LIMIT]
    assert world.load().patches.keys() == {ref for one in world.load().series for ref in one.patches}


@pytest.mark.slow
def test_again_and_again(world: World, folder: Path) -> None:
    for number in range(3):
        (folder / "gamma/main.py").write_bytes(MAIN + b"again\n" * (number + 1))
        user_git(folder, "commit", "-q", "-a", "--amend", "--no-edit")
        assert names(refresh(world, folder).changed) == [LIMIT]
        assert names(refresh(world, folder).kept) == [HOOK, FLAG, LIMIT]


def test_a_linked_working_tree(world: World, folder: Path) -> None:
    user_git(folder, "worktree", "add", "-q", "../linked", "HEAD")
    assert names(refresh(world, folder.with_name("linked")).kept) == [HOOK, FLAG, LIMIT]


GLOBAL = """\
[commit]
    gpgsign = {sign}
[gpg]
    program = {program}
[format]
    signature = "a signature"
    signOff = true
    numbered = true
    subjectPrefix = RFC
    headers = "X-Of-The-User: yes\\n"
    attach
[diff]
    noprefix = true
    mnemonicPrefix = true
    algorithm = histogram
    context = 9
    renames = false
    interHunkContext = 30
[core]
    autocrlf = {crlf}
    quotePath = true
    abbrev = 5
    attributesFile = {attributes}
    hooksPath = {hooks}
[i18n]
    commitEncoding = ISO-8859-1
[merge]
    conflictStyle = zdiff3
[status]
    showUntrackedFiles = no
"""


SIGNER = """\
#!/bin/sh
cat > /dev/null
printf '\\n[GNUPG:] SIG_CREATED \\n' >&2
printf -- '-----BEGIN PGP SIGNATURE-----\\n\\nx\\n-----END PGP SIGNATURE-----\\n'
"""


@pytest.mark.parametrize("place", ["global", "xdg", "local"])
@pytest.mark.parametrize("crlf", ["true", "input"])
def test_the_users_configuration_changes_no_byte(
    world: World, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, crlf: str
) -> None:
    before = world.files()
    attributes, signer = tmp_path / "attributes", tmp_path / "signer"
    attributes.write_text("*.py diff=mine\n*.txt binary\n")
    signer.write_text(SIGNER)
    signer.chmod(0o755)
    text = GLOBAL.format(sign="true", program=signer, crlf=crlf, attributes=attributes, hooks=tmp_path / "hooks")
    text += '[diff "mine"]\n    xfuncname = "^gamma"\n    textconv = cat -n\n'
    if place == "global":
        (home / "config").write_text(text)
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "config"))
    elif place == "xdg":
        (home / ".config/git").mkdir(parents=True)
        (home / ".config/git/config").write_text(text)
        (home / ".config/git/attributes").write_text(attributes.read_text() + "*.py diff=python\n")
    with world.stores() as stores:
        worktree.checkout(stores, "gamma", tmp_path / "gamma")
    if place == "local":
        with (tmp_path / "gamma/.git/config").open("a") as config:
            config.write(text)
        (tmp_path / "gamma/.git/info").mkdir(exist_ok=True)
        (tmp_path / "gamma/.git/info/attributes").write_text(attributes.read_text() + "*.py diff=python\n")
    rebase_i(tmp_path / "gamma", "s/pick/reword/")
    # Written anew by the user's git, and with a time that makes ours look into them.
    user_git(tmp_path / "gamma", "checkout", "-q", worktree.BASE_TAG)
    user_git(tmp_path / "gamma", "checkout", "-q", "stack")
    os.utime(tmp_path / "gamma/gamma/main.py")
    found = refresh(world, tmp_path / "gamma")
    assert (names(found.changed), names(found.kept)) == ([], [HOOK, FLAG, LIMIT])
    assert world.files() == before
    with world.stores() as stores:
        assert lint.lint(stores) == ()


def test_upstreams_attributes_change_no_byte(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.gitattributes` in the tree or in the folder where the command runs: other headers of hunks, or no diff at all."""
    with world.stores() as stores:
        worktree.checkout(stores, "gamma", tmp_path / "gamma")
    tree = tmp_path / "gamma"
    lines = b"*.py diff=python\n*.dat binary\n*.sh text eol=lf\n"
    code = b"def one():\n" + b"    x = 1\n" * 9 + b"\n    def two(self):\n" + b"    y = 1\n" * 9
    commit(tree, ".gitattributes", lines, "-m", "Attributes", "--trailer", "Stack-Series: two")
    commit(tree, "gamma/code.py", code, "-m", "Code", "--trailer", "Stack-Series: two")
    commit(tree, "gamma/code.py", code + b"    z = 1\n", "-m", "More code", "--trailer", "Stack-Series: two")
    commit(tree, "plain.dat", b"plain\n", "-m", "Data", "--trailer", "Stack-Series: two")
    monkeypatch.chdir(tree)
    refresh(world, tree)
    assert "+plain" in world.read("stacks/two/gamma/data.patch")
    assert names(refresh(world, tree).changed) == []
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/.gitattributes").write_bytes(b"*.py diff=python\n* -diff\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert names(refresh(world, tree).changed) == []


TRAILER = ("--trailer", "Stack-Series: two")


def _uncommitted(folder: Path) -> None:
    (folder / "gamma/main.py").write_bytes(b"x\n")


def _staged(folder: Path) -> None:
    (folder / "new").write_bytes(b"x\n")
    user_git(folder, "add", "new")


def _in_a_rebase(folder: Path) -> None:
    rebase_i(folder, "2s/pick/edit/")


def _merge(folder: Path) -> None:
    user_git(folder, "checkout", "-q", "-b", "side", worktree.BASE_TAG)
    commit(folder, "side", b"x\n", "-m", "Side", *TRAILER)
    user_git(folder, "checkout", "-q", "stack")
    user_git(folder, "merge", "-q", "--no-edit", "side")


def _elsewhere(folder: Path) -> None:
    user_git(folder, "checkout", "-q", "--orphan", "new")
    user_git(folder, "commit", "-q", "-m", "x")


REFUSED = {
    "uncommitted": (_uncommitted, "has 1 uncommitted change, first gamma/main.py: commit, stash or remove them"),
    "staged": (_staged, "has 1 uncommitted change, first new"),
    "untracked": (lambda folder: (folder / "note").write_text("x"), "has 1 uncommitted change, first note"),
    "in a rebase": (_in_a_rebase, "is in the middle of a git operation (rebase-merge): finish or abort it first"),
    "merge": (_merge, "is a merge: a series is a line of commits"),
    "other history": (_elsewhere, "does not stand on the pin: rebase your commits onto stack-base"),
    "no series": (
        lambda folder: commit(folder, "new", b"x\n", "-m", "New"),
        "(New) names no series: add one: git commit --amend",
    ),
    "unknown series": (
        lambda folder: commit(folder, "new", b"x\n", "-m", "New", "--trailer", "Stack-Series: three"),
        "names the series 'three', which is not in stacks/: there are: one, two",
    ),
    "an order that does not commute": (
        lambda folder: commit(
            folder, "gamma/main.py", MAIN.replace(b"limit, fixed", b"limit"), "-m", "New", "--trailer", "Stack-Series: one"
        ),
        "of two, which comes later in stacks/stack.toml: both change gamma/main.py: give them the same series",
    ),
    "empty": (
        lambda folder: user_git(folder, "commit", "-q", "--allow-empty", "-m", "New", *TRAILER),
        "changes nothing: drop it",
    ),
    "a line that ends the message": (
        lambda folder: commit(folder, "new", b"x\n", "-m", "New\n\nAbove\n\n---\n\nBelow\n\nStack-Series: two"),
        "would lose a part of its message: in a patch file its line '---' ends the message",
    ),
    "a line that begins the diff": (
        lambda folder: commit(folder, "new", b"x\n", "-m", "New\n\nAbove\n\ndiff -u a b\n\nBelow", *TRAILER),
        "would lose a part of its message",
    ),
}


@pytest.mark.parametrize("stated", [b"", b"encoding of-nobody\n", b"encoding utf-8\n"])
def test_a_message_that_is_not_utf_8_is_read_as_git_am_reads_it(world: World, folder: Path, stated: bytes) -> None:
    """Git itself makes UTF-8 of it where it can; other tools do not."""
    head = user_git(folder, "cat-file", "commit", "HEAD").encode()
    head = (
        head.replace(b"\n\n", b"\n" + stated + b"\n", 1)
        .replace(b"Why it", b"Gr\xf6\xdfer: why it")
        .replace(b"author ", b"author J\xf6", 1)
    )
    new = user_git(folder, "hash-object", "-t", "commit", "-w", "--stdin", stdin=head + b"\n")
    user_git(folder, "reset", "-q", "--hard", new)
    found = refresh(world, folder)
    assert names(found.changed) == [LIMIT]
    patch = next(one for one in world.load().order("gamma") if one.ref.path == LIMIT)
    assert "Gr\u00f6\u00dfer: why it" in patch.message
    assert patch.author.name.startswith("J\u00f6")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x\r\ny\n", "New"),
        (b"gr\xf6\xdfer\n", "New"),
        (b"x\n", "[DISPATCH] New"),
        (b"x\n", "[PATCH 1/2] New"),
        (b"x\n", "New\n\nFrom: Bob <bob@example.org>\nsaid so.\n\nMore."),
        (b"x\n", "New\n\nfrom: Bob <bob@example.org>\nSubject: other\nDate: never\nis what it says."),
        (b"x\n", "New\n\nSubject: it is about\nthis."),
        (b"x\n", "New\n\n[PATCH] is what it begins with."),
        (b"x\n", "New\n\n>From there."),
    ],
)
def test_what_git_can_commit_comes_back(world: World, folder: Path, content: bytes, message: str) -> None:
    """Out and back, the bytes stay; and `git am` makes the same commit of the patch file."""
    commit(folder, "new", content, "-m", message, *TRAILER)
    found = refresh(world, folder)
    [ref] = found.added
    raw = (world.root / "stacks" / ref.path).read_bytes()
    patch = world.load().patches[ref]
    assert patch.message == f"{message}\n\nSigned-off-by: U <u@u>\n"
    assert (patch.author.name, patch.author.mail) == ("U", "u@u")
    assert refresh(world, folder).changed == ()
    again = folder.parent / "again"
    with world.stores() as stores:
        worktree.checkout(stores, "gamma", again)
    assert user_git(again, "rev-parse", "HEAD^{tree}") == user_git(folder, "rev-parse", "HEAD^{tree}")
    refresh(world, again)
    assert (world.root / "stacks" / ref.path).read_bytes() == raw
    user_git(again, "reset", "-q", "--hard", "HEAD~1")
    user_git(again, "am", "-q", "-b", "--keep-cr", str(world.root / "stacks" / ref.path))
    assert user_git(again, "rev-parse", "HEAD^{tree}") == user_git(folder, "rev-parse", "HEAD^{tree}")
    assert user_git(again, "log", "-1", "--format=%an <%ae>").strip() == "U <u@u>"
    if "PATCH" not in message.partition("\n")[0] and "DISPATCH" not in message:
        assert user_git(again, "log", "-1", "--format=%B").rstrip() == patch.message.rstrip()


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_lost_is_refused(world: World, folder: Path, case: str) -> None:
    spoil, message = REFUSED[case]
    spoil(folder)
    before = world.files()
    with world.stores() as stores, pytest.raises(StackError) as raised:
        worktree.refresh(stores, "gamma", folder)
    assert message in str(raised.value)
    assert world.files() == before


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        (
            "stacks/one/gamma/tool-flag.patch",
            "Why it",
            "Why else it",
            "stacks/one/gamma/tool-flag.patch has changed in the stack since",
        ),
        (
            "stacks/two/series.toml",
            '[[patch]]\nupstream = "gamma"\nfile = "gamma/fix-limit.patch"\n',
            "",
            "has changed in the stack since",
        ),
        ("pins.toml", "v2.0", "v2.2", "stands on another pin of gamma"),
    ],
)
def test_a_stack_that_changed_since_the_checkout(
    world: World, folder: Path, path: str, old: str, new: str, message: str
) -> None:
    if not new:
        (world.root / "stacks" / LIMIT).unlink()
    world.edit(path, old, new)
    if new == "v2.2":
        for name, value in (("version", "2.2"), ("commit", world.commits["gamma v2.2"][:9])):
            pin = world.load().pins.get("gamma")
            assert pin.archive is not None
            was = pin.archive.version if name == "version" else pin.commit
            text = world.read("pins.toml").replace(f'"{was}"', f'"{value}"', 1)
            (world.root / "pins.toml").write_text(text)
        lines = [line for line in world.read("pins.toml").splitlines() if not line.startswith("tree    ")]
        digest = world.load().pins.get("gamma").archive
        assert digest is not None
        (world.root / "pins.toml").write_text("\n".join(lines).replace(f', sha256 = "{digest.sha256}"', ""))
    with world.stores() as stores, pytest.raises(StackError, match=message):
        worktree.refresh(stores, "gamma", folder)


def test_a_stack_that_changes_while_it_is_written(world: World, folder: Path) -> None:
    user_git(folder, "reset", "-q", "--hard", "HEAD~1")
    with world.stores() as stores:
        found = worktree.refresh(stores, "gamma", folder)
        world.edit("stacks/two/series.toml", 'title = "Two"', 'title = "2"')
        changed = world.files()
        with pytest.raises(StackError, match="changed while this command ran"):
            worktree.write_back(stores.stack, folder, found, title="x")
    assert world.files() == changed


@pytest.mark.parametrize("case", ["another upstream", "no checkout", "no folder", "a file", "a repository of the user's"])
def test_another_folder_is_refused(world: World, folder: Path, tmp_path: Path, case: str) -> None:
    place, upstream, message = tmp_path / "other", "gamma", "was not made by `stack checkout`"
    if case == "another upstream":
        place, upstream, message = folder, "alpha", "is a working tree of gamma: stack refresh gamma"
    elif case == "no folder":
        message = "is not a folder: `stack checkout gamma"
    elif case == "a file":
        place.write_text("x")
        message = "is not a folder"
    else:
        place.mkdir()
        if case.startswith("a repository"):
            user_git(place, "init", "-q")
    with world.stores() as stores, pytest.raises(StackError) as raised:
        worktree.refresh(stores, upstream, place)
    assert message in str(raised.value)


def refused_record(world: World, folder: Path) -> None:
    """The record is refused in one line that names it, before anything is written."""
    before, file = world.files(), folder / ".git/stack-checkout.json"
    with world.stores() as stores, pytest.raises(StackError) as raised:
        worktree.refresh(stores, "gamma", folder)
    assert str(raised.value) == f"{file} is not what stack wrote: check out anew and move your commits there"
    assert world.files() == before


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record(world: World, folder: Path, data: bytes) -> None:
    (folder / ".git/stack-checkout.json").write_bytes(data)
    refused_record(world, folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("upstream", None),
        ("upstream", "two\nlines"),
        ("source", 1),
        ("source", "elsewhere"),
        ("base", ["HEAD"]),
        ("base", "--help"),
        ("patches", []),
        ("patches", {HOOK: 1}),
    ],
)
def test_a_record_with_a_value_of_another_kind(world: World, folder: Path, key: str, value: object) -> None:
    file = folder / ".git/stack-checkout.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    refused_record(world, folder)


def test_a_record_that_is_damaged_before_it_is_written_back(world: World, folder: Path) -> None:
    commit(folder, "gamma/main.py", MAIN + b"more\n", "-m", "More", "--trailer", "Stack-Series: two")
    before = world.files()
    with world.stores() as stores:
        found = worktree.refresh(stores, "gamma", folder)
        (folder / ".git/stack-checkout.json").write_bytes(b"{}")
        with pytest.raises(StackError, match="is not what stack wrote"):
            worktree.write_back(stores.stack, folder, found, title="refresh gamma")
    assert world.files() == before


@pytest.mark.parametrize("target", ["missing", "link"], ids=["dangling", "to itself"])
def test_a_link_to_what_is_not_there_is_no_place(world: World, tmp_path: Path, target: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(target)
    with world.stores() as stores, pytest.raises(StackError) as raised:
        worktree.checkout(stores, "gamma", link)
    assert str(raised.value) == f"{link} is a dangling link: remove it, or name another folder"
    assert link.is_symlink()
    assert not (tmp_path / "missing").exists()


def test_a_link_to_an_empty_folder_is_followed(world: World, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    with world.stores() as stores:
        worktree.checkout(stores, "gamma", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "empty/gamma/main.py").is_file()
    refresh(world, tmp_path / "link")


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_checkout_never_writes_into_what_is_there(world: World, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "there"
    if kind == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "mine").write_text("mine")
    with world.stores() as stores, pytest.raises(StackError, match="is not an empty folder"):
        worktree.checkout(stores, "gamma", place)
    assert (place if kind == "file" else place / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("message", "marked"),
    [
        ("S\n", "S\n\nStack-Series: x\nStack-Patch: y\n"),
        ("S\n\nBody.\n", "S\n\nBody.\n\nStack-Series: x\nStack-Patch: y\n"),
        ("S\n\nBody.\n\nFixes: 1\n", "S\n\nBody.\n\nFixes: 1\nStack-Series: x\nStack-Patch: y\n"),
        ("S: is no trailer\n", "S: is no trailer\n\nStack-Series: x\nStack-Patch: y\n"),
        ("S\n\nNot: one\nbut text\n", "S\n\nNot: one\nbut text\n\nStack-Series: x\nStack-Patch: y\n"),
    ],
)
def test_trailers_go_on_and_off(message: str, marked: str) -> None:
    assert trailers.with_trailers(message, {"Stack-Series": "x", "Stack-Patch": "y"}) == marked
    assert trailers.without_trailers(marked, (trailers.SERIES, trailers.PATCH)) == message


def test_a_folder_inside_of_the_stack_is_not_taken(world: World) -> None:
    with world.stores() as stores:
        for name in ("stacks/tree", ".stack/tree"):
            with pytest.raises(StackError, match="inside of the stack's own files"):
                worktree.checkout(stores, "gamma", world.root / name)


def test_a_checkout_that_fails_leaves_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise StackError("no", "never")

    with world.stores() as stores:
        monkeypatch.setattr(worktree, "_write_record", fails)
        with pytest.raises(StackError, match="no"):
            worktree.checkout(stores, "gamma", tmp_path / "made/tree")
        assert list((tmp_path / "made").iterdir()) == []
        monkeypatch.undo()
        worktree.checkout(stores, "gamma", tmp_path / "made/tree")
        assert (tmp_path / "made/tree/.git").is_dir()
