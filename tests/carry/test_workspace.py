# SPDX-License-Identifier: Apache-2.0
"""Resolving conflicts by hand, one after the other, with the user's own git."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.carry import lint, rebase, resolutions, workspace
from stack.carry.outcome import Outcome
from stack.carry.rebase import Conclusion, Rebase, Request, conclude
from stack.carry.workspace import Session
from stack.model import digest, switch
from stack.model.pins import Source

from .test_worktree import DAMAGED, user_git
from .world import Files, World, numbered

HOOK, LIMIT, SWITCH = "one/gamma/hook-main.patch", "two/gamma/fix-limit.patch", "one/alpha/core-switch.patch"
STOPS = (HOOK, LIMIT, SWITCH)
# What a person makes of each conflict.
RESOLUTIONS: dict[str, Files] = {
    HOOK: {"gamma/main.py": numbered("main", {10: "upstream's hook", 30: "upstream's limit"})},
    LIMIT: {"gamma/main.py": numbered("main", {10: "upstream's hook", 30: "upstream's limit, fixed"})},
    SWITCH: {"alpha/core.py": numbered("core", {10: "upstream's switch"})},
}


@dataclass
class Work:
    """A rebase of gamma onto v2.2, which conflicts in three patches over two upstreams."""

    world: World
    folder: Path
    source: Source = "archive"
    session: Session | None = None
    done: Rebase | None = None
    stops: list[str] = field(default_factory=list)

    def start(self, clone: Path | None = None) -> "Work":
        with self.world.stores(self.source) as stores:
            found = rebase.rebase(stores, Request("gamma", "v2.2", with_required=True))
            assert conclude(found) is Conclusion.CONFLICT
            now = digest.exact(stores.stack)
            allowed = {"allow_mismatch": False, "allow_drift": False}
            self.session = workspace.start(self.folder, stores, found, **allowed, digest=now, clone=clone)
        return self

    def resolve(self, files: Files) -> None:
        for path, content in files.items():
            (self.folder / path).write_bytes(content)
            user_git(self.folder, "add", path)

    def proceed(self, *, skip: bool = False) -> Rebase:
        session = workspace.load(self.folder)
        self.stops.append(session.patch)
        with self.world.stores(session.source) as stores:
            now = digest.exact(stores.stack)
            self.done, self.session = workspace.proceed(self.folder, stores, session, digest=now, skip=skip)
        return self.done

    def finish(self) -> Conclusion:
        assert self.done is not None
        assert not self.done.open
        ended = conclude(self.done)
        workspace.finish(self.folder)
        return ended


def but_resolutions(world: World) -> Files:
    """The stack's files without its resolutions."""
    return {path: data for path, data in world.files().items() if not path.startswith("stacks/resolutions/")}


def kept_resolutions(world: World) -> Files:
    return {path: data for path, data in world.files().items() if path.startswith("stacks/resolutions/")}


@pytest.fixture
def work(world: World, tmp_path: Path) -> Work:
    return Work(world, tmp_path / "workspace").start()


def added(work: Work) -> None:
    """The user adds, and commits nothing."""


def picked(work: Work) -> None:
    user_git(work.folder, "cherry-pick", "--continue")


def committed(work: Work) -> None:
    user_git(work.folder, "commit", "-q", "--no-edit")


@pytest.mark.parametrize("how", [added, picked, committed], ids=lambda how: how.__name__)
@pytest.mark.parametrize("source", ["archive", "git"])
def test_one_conflict_after_the_other(world: World, tmp_path: Path, how: Callable[[Work], None], source: Source) -> None:
    before = world.files()
    work = Work(world, tmp_path / "workspace", source).start()
    # Its history tells that gamma took the limit's fix in v2.1 and changed the line again in v2.2: nothing to resolve.
    stops = STOPS if source == "archive" else (HOOK, SWITCH)
    for patch in stops:
        assert workspace.load(work.folder).patch == patch
        assert but_resolutions(world) == before
        work.resolve(RESOLUTIONS[patch])
        how(work)
        work.proceed()
    assert work.stops == list(stops)
    assert work.done is not None
    rows = {row.patch.ref.path: row for row in work.done.rows()}
    assert {path for path, row in rows.items() if row.by_hand} == set(stops)
    assert (rows[LIMIT].outcome is Outcome.LANDED) == (source == "git")
    assert work.finish() is Conclusion.SWITCHED
    assert not work.folder.exists()
    assert [world.load().pins.get(name).tag for name in ("gamma", "alpha")] == ["v2.2", "v1.3"]
    if source == "archive":
        assert "-upstream's limit\n+upstream's limit, fixed\n" in world.read(f"stacks/{LIMIT}")
    else:
        assert not (world.root / f"stacks/{LIMIT}").exists()
    assert world.read(f"stacks/{SWITCH}").count("extra") == before[f"stacks/{SWITCH}"].count(b"extra")
    with world.stores(source) as stores:
        assert lint.lint(stores) == ()


def test_the_markers_show_all_three_sides(work: Work) -> None:
    lines = (work.folder / "gamma/main.py").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("<<<<<<< "))
    assert [line.split(" ")[0] if line[:1] in "<|=>" else line for line in lines[start : start + 7]] == [
        *("<<<<<<<", "upstream's", "|||||||", "main 10", "=======", "hook", ">>>>>>>")
    ]
    assert "Hook main" in lines[start + 6]
    assert user_git(work.folder, "status", "--porcelain") == "UU gamma/main.py"
    # What could be carried before it stands below it.
    work.resolve(RESOLUTIONS[HOOK])
    work.proceed()
    assert user_git(work.folder, "log", "--format=%s", "-2").splitlines() == ["[tool] Flag für das Werkzeug", "Hook main"]


def test_attributes_hide_no_conflict(world: World, tmp_path: Path, home: Path) -> None:
    """`merge=union` takes both sides without a word: the user's attributes do not count, whatever name a file is merged under."""
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/attributes").write_text("* merge=union\n")
    work = Work(world, tmp_path / "workspace").start()
    assert b"<<<<<<<" in (work.folder / "gamma/main.py").read_bytes()


def test_the_new_bases_own_side_is_left_out_on_request_only(work: Work) -> None:
    for patch in STOPS:
        theirs = next(iter(RESOLUTIONS[patch]))
        user_git(work.folder, "checkout", "-q", "refs/stack/onto", "--", theirs)
        if patch == SWITCH:
            user_git(work.folder, "rm", "-q", "-f", "alpha/extra.py")
        with pytest.raises(StackError, match=r"nothing of the patch is left in .*--skip"):
            work.proceed()
        work.proceed(skip=True)
    assert work.done is not None
    assert {row.evidence for row in work.done.rows() if row.outcome is Outcome.LEFT_OUT} == {("a person left it out",)}
    left_out = [row.patch.ref.path for row in work.done.rows() if row.outcome is Outcome.LEFT_OUT]
    assert left_out == list(STOPS)
    assert work.finish() is Conclusion.SWITCHED
    assert {ref.path for ref in work.world.load().patches}.isdisjoint(STOPS)


def test_a_head_that_stands_elsewhere_is_refused(work: Work) -> None:
    before = work.world.files()
    user_git(work.folder, "checkout", "-q", "-f", "--detach", "refs/stack/patch")
    with pytest.raises(StackError, match=r"HEAD of .* does not stand on the new base"):
        work.proceed()
    assert work.world.files() == before


def unresolved(work: Work) -> str:
    return "gamma/main.py in .* is not resolved: edit it, `git add` it"


def markers(work: Work) -> str:
    user_git(work.folder, "add", "gamma/main.py")
    return "gamma/main.py in .* still has conflict markers"


def markers_committed(work: Work) -> str:
    user_git(work.folder, "add", "gamma/main.py")
    user_git(work.folder, "cherry-pick", "--continue")
    return "gamma/main.py in .* still has conflict markers"


def not_added(work: Work) -> str:
    work.resolve(RESOLUTIONS[HOOK])
    (work.folder / "gamma/main.py").write_bytes(b"more\n")
    return "gamma/main.py in .* is changed but not added"


def another_not_added(work: Work) -> str:
    work.resolve(RESOLUTIONS[HOOK])
    (work.folder / "gamma/helper.py").write_bytes(b"more\n")
    return "gamma/helper.py in .* is changed but not added"


def deleted_not_added(work: Work) -> str:
    work.resolve(RESOLUTIONS[HOOK])
    (work.folder / "gamma/tool.py").unlink()
    return "gamma/tool.py in .* is changed but not added"


@pytest.mark.parametrize(
    "spoil",
    [unresolved, markers, markers_committed, not_added, another_not_added, deleted_not_added],
    ids=lambda how: how.__name__,
)
def test_what_is_not_resolved_is_refused(work: Work, spoil: Callable[[Work], str]) -> None:
    before = work.world.files()
    message = spoil(work)
    shown = (work.folder / "gamma/main.py").read_bytes()
    for _ in range(2):
        with pytest.raises(StackError, match=message):
            work.proceed()
    assert (work.folder / "gamma/main.py").read_bytes() == shown
    assert work.world.files() == before
    # And then it can still be resolved.
    (work.folder / "gamma/helper.py").unlink(missing_ok=True)
    user_git(work.folder, "checkout", "-q", "refs/stack/onto", "--", "gamma/tool.py")
    work.resolve(RESOLUTIONS[HOOK])
    work.proceed()
    assert workspace.load(work.folder).patch == LIMIT


def test_markers_in_a_file_that_had_no_conflict(work: Work) -> None:
    (work.folder / "docs.md").write_bytes(b"<<<<<<< HEAD\n")
    user_git(work.folder, "add", "docs.md")
    work.resolve(RESOLUTIONS[HOOK])
    with pytest.raises(StackError, match=r"docs.md in .* still has conflict markers"):
        work.proceed()


def test_a_stack_that_changed_meanwhile_is_refused(work: Work) -> None:
    work.resolve(RESOLUTIONS[HOOK])
    work.world.edit("stacks/one/gamma/tool-flag.patch", "Why it", "Why else it")
    changed = work.world.files()
    with pytest.raises(StackError, match="has changed since this rebase began: restore it, or --abort and start again"):
        work.proceed()
    assert work.world.files() == changed
    # Restored, it goes on.
    work.world.edit("stacks/one/gamma/tool-flag.patch", "Why else it", "Why it")
    work.proceed()
    assert workspace.load(work.folder).patch == LIMIT


def test_given_up(work: Work) -> None:
    """The first resolution is kept, and the next carry takes it."""
    before = work.world.files()
    work.resolve(RESOLUTIONS[HOOK])
    work.proceed()
    workspace.finish(work.folder)
    assert not work.folder.exists()
    assert but_resolutions(work.world) == before
    assert len(kept_resolutions(work.world)) == 1
    assert switch.history(work.world.root) == ()
    with work.world.stores() as stores:
        again = rebase.rebase(stores, Request("gamma", "v2.2", with_required=True))
    assert [row.outcome for row in again.rows() if row.patch.ref.path == HOOK] == [Outcome.RESOLVED]


def test_undo_and_redo_leave_resolutions_alone(world: World, work: Work) -> None:
    for patch in STOPS:
        work.resolve(RESOLUTIONS[patch])
        work.proceed()
    kept = kept_resolutions(world)
    assert work.finish() is Conclusion.SWITCHED
    after = world.files()
    switch.undo(world.root)
    assert kept_resolutions(world) == kept
    assert len(kept) == len(STOPS)
    switch.redo(world.root)
    assert world.files() == after


def test_a_patch_that_is_left_out_records_nothing(work: Work) -> None:
    """Even where the working tree holds a resolution: the person has not chosen it."""
    work.resolve(RESOLUTIONS[HOOK])
    work.proceed(skip=True)
    assert kept_resolutions(work.world) == {}
    assert work.session is not None
    assert work.session.not_recorded == ()


@pytest.mark.parametrize("how", [added, committed], ids=lambda how: how.__name__)
@pytest.mark.parametrize("enabled", [True, False])
def test_what_rerere_has_recorded_is_taken_over(
    world: World, tmp_path: Path, home: Path, how: Callable[[Work], None], enabled: bool
) -> None:
    """The user's rerere resolves the conflict in a later working tree, and that becomes a resolution of the stack."""
    (home / ".gitconfig").write_text(f"[rerere]\n\tenabled = {str(enabled).lower()}\n")
    first = Work(world, tmp_path / "first").start()
    first.resolve(RESOLUTIONS[HOOK])
    how(first)
    first.proceed()
    workspace.finish(first.folder)
    kept = kept_resolutions(world)
    assert resolutions.drop(world.root, [Path(path).stem for path in kept])
    again = Work(world, tmp_path / "again").start()
    assert user_git(again.folder, "status", "--porcelain") == "UU gamma/main.py"
    [content] = RESOLUTIONS[HOOK].values()
    assert ((again.folder / "gamma/main.py").read_bytes() == content) == enabled
    if enabled:
        user_git(again.folder, "add", "gamma/main.py")
        again.proceed()
        assert kept_resolutions(world) == kept


def test_rerere_is_shared_with_a_clone_of_the_users_both_ways(world: World, tmp_path: Path, home: Path) -> None:
    """Its records resolve the conflict here, and it gets those that are made here; the user has rerere in that clone only."""
    clone = tmp_path / "clone"
    user_git(tmp_path, "init", "-q", "clone")
    user_git(clone, "config", "rerere.enabled", "true")
    first = Work(world, tmp_path / "first").start(clone)
    first.resolve(RESOLUTIONS[HOOK])
    first.proceed()
    workspace.finish(first.folder)
    assert list((clone / ".git/rr-cache").glob("*/postimage"))
    kept = kept_resolutions(world)
    assert resolutions.drop(world.root, [Path(path).stem for path in kept])
    again = Work(world, tmp_path / "again").start(clone)
    [content] = RESOLUTIONS[HOOK].values()
    assert (again.folder / "gamma/main.py").read_bytes() == content
    workspace.finish(again.folder)
    assert list((clone / ".git/rr-cache").glob("*/postimage"))


@pytest.mark.parametrize(
    ("made", "problem"), [(False, "is not a git repository"), (True, "has no rerere: turn it on: git -C")], ids=["none", "off"]
)
def test_a_clone_without_rerere(world: World, tmp_path: Path, home: Path, made: bool, problem: str) -> None:
    clone = tmp_path / "clone"
    if made:
        user_git(tmp_path, "init", "-q", "clone")
    with pytest.raises(StackError, match=problem):
        Work(world, tmp_path / "first").start(clone)
    assert not (tmp_path / "first").exists()
    assert not (clone / ".git/rr-cache").exists()


@pytest.mark.parametrize("style", ["merge", "zdiff3", None])
def test_conflicts_are_shown_as_the_user_has_them(world: World, tmp_path: Path, home: Path, style: str | None) -> None:
    if style is not None:
        (home / ".gitconfig").write_text(f"[merge]\n\tconflictStyle = {style}\n[diff]\n\talgorithm = minimal\n")
    work = Work(world, tmp_path / "workspace").start()
    assert (b"|||||||" in (work.folder / "gamma/main.py").read_bytes()) == (style != "merge")
    work.resolve(RESOLUTIONS[HOOK])
    work.proceed()
    assert len(kept_resolutions(world)) == 1


def nothing(place: Path) -> None:
    place.mkdir()


def a_repository(place: Path) -> None:
    place.mkdir()
    user_git(place, "init", "-q")


def a_checkout(place: Path) -> None:
    a_repository(place)
    (place / ".git/stack-checkout.json").write_text("{}")


def a_file(place: Path) -> None:
    place.write_text("mine")


@pytest.mark.parametrize("make", [nothing, a_repository, a_checkout, a_file], ids=lambda how: how.__name__)
def test_a_folder_that_is_not_ours_is_never_deleted(tmp_path: Path, make: Callable[[Path], None]) -> None:
    place = tmp_path / "mine"
    make(place)
    for act in (workspace.finish, workspace.load):
        with pytest.raises(StackError, match="is not the working tree of a rebase: start one: stack rebase"):
            act(place)
    assert place.exists()


def refused_record(work: Work) -> None:
    """The record is refused in one line that names it, and the workspace can be given up all the same."""
    before, file = work.world.files(), work.folder / ".git/stack-rebase.json"
    with pytest.raises(StackError) as raised:
        workspace.load(work.folder)
    assert str(raised.value) == f"{file} is not what stack wrote: give it up: stack rebase --abort {work.folder}"
    workspace.finish(work.folder)
    assert not work.folder.exists()
    assert work.world.files() == before


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record(work: Work, data: bytes) -> None:
    (work.folder / ".git/stack-rebase.json").write_bytes(data)
    refused_record(work)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("root", None),
        ("root", "/\0"),
        ("root", "beside"),
        ("tag", 1),
        ("with_required", "yes"),
        ("through", "auto"),
        ("resolved", []),
        ("resolved", {"step": "HEAD"}),
        ("behaviour", []),
        ("behaviour", {HOOK: {"commit": 1}}),
        ("source", "elsewhere"),
        ("allow_drift", None),
        ("digest", None),
        ("shown", []),
        ("shown", {HOOK: 1}),
        ("at", []),
        ("at", {"upstream": "gamma"}),
    ],
)
def test_a_record_with_a_value_of_another_kind(work: Work, key: str, value: object) -> None:
    file = work.folder / ".git/stack-rebase.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    refused_record(work)


def test_a_record_is_read_as_it_was_written(work: Work) -> None:
    file = work.folder / ".git/stack-rebase.json"
    behaviour = {HOOK: {"commit": "1" * 40, "subject": "passes", "score": 1.0, "rung": "v2.1", "behaviour": True}}
    written: dict[str, Any] = json.loads(file.read_text()) | {
        "through": ["v2.1"],
        "resolved": {"step": "2" * 40},
        "behaviour": behaviour,
    }
    file.write_text(json.dumps(written))
    session = workspace.load(work.folder)
    workspace._write_record(work.folder, session)
    assert json.loads(file.read_text()) == written


@pytest.mark.parametrize("target", ["missing", "workspace"], ids=["dangling", "to itself"])
def test_a_link_to_what_is_not_there_is_not_taken(world: World, tmp_path: Path, target: str) -> None:
    link = tmp_path / "workspace"
    link.symlink_to(target)
    with pytest.raises(StackError) as raised:
        Work(world, link).start()
    assert str(raised.value) == f"{link} is a dangling link: remove it, or name another folder"
    assert link.is_symlink()


def test_a_folder_with_files_is_not_taken(world: World, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/mine").write_text("mine")
    with pytest.raises(StackError, match="is not an empty folder"):
        Work(world, tmp_path / "workspace").start()
    assert (tmp_path / "workspace/mine").read_text() == "mine"


def test_nothing_to_resolve(world: World, tmp_path: Path) -> None:
    with world.stores() as stores:
        found = rebase.rebase(stores, Request("gamma", "v2.1", with_required=True))
        with pytest.raises(StackError, match="no patch needs a person"):
            workspace.start(tmp_path / "workspace", stores, found, allow_mismatch=False, allow_drift=False, digest="")
    assert not (tmp_path / "workspace/.git").exists()


def taken_back(world: World) -> Files:
    """Undo a rebase; the resolutions that are left."""
    switch.undo(world.root)
    return kept_resolutions(world)


def test_what_was_resolved_is_reused(world: World, work: Work) -> None:
    for patch in STOPS:
        work.resolve(RESOLUTIONS[patch])
        work.proceed()
    assert work.finish() is Conclusion.SWITCHED
    with world.stores() as stores:
        assert lint.lint(stores) == ()
    after = world.files()
    kept = taken_back(world)
    assert len(kept) == len(STOPS)
    with world.stores() as stores:
        again = rebase.rebase(stores, Request("gamma", "v2.2", with_required=True))
    assert {row.patch.ref.path for row in again.rows() if row.outcome is Outcome.RESOLVED} == set(STOPS)
    assert conclude(again) is Conclusion.SWITCHED
    assert world.files() == after


def test_a_file_resolved_beyond_recognition_is_not_kept(world: World, work: Work) -> None:
    work.resolve({"gamma/main.py": b"all\nnew\n"})
    work.proceed()
    assert work.session is not None
    assert [reason.partition(":")[0] for reason in work.session.not_recorded] == ["gamma/main.py"]
    assert kept_resolutions(world) == {}


def test_what_was_changed_beside_a_conflict_is_reused(world: World, work: Work) -> None:
    tool = numbered("tool", {35: "the hook has gone here"})
    for patch in STOPS:
        work.resolve(RESOLUTIONS[patch] | ({"gamma/tool.py": tool} if patch == HOOK else {}))
        work.proceed()
    assert work.session is not None
    assert work.session.not_recorded == ()
    assert work.finish() is Conclusion.SWITCHED
    assert "+the hook has gone here" in world.read(f"stacks/{HOOK}")
    after = world.files()
    kept = taken_back(world)
    with world.stores() as stores:
        again = rebase.rebase(stores, Request("gamma", "v2.2", with_required=True))
    assert conclude(again, dry_run=True) is Conclusion.DRY_RUN
    # Where the lines beside are other ones, a person has to look again.
    [file] = [path for path, data in kept.items() if b"[[beside]]" in data]
    (world.root / file).write_bytes(kept[file].replace(b"tool 34", b"another line"))
    with world.stores() as stores:
        other = rebase.rebase(stores, Request("gamma", "v2.2", with_required=True))
    [row] = [row for row in other.rows() if row.patch.ref.path == HOOK]
    assert (row.outcome, row.evidence[-1]) == (Outcome.CONFLICT, "what was changed beside the conflict then has no place there")
    (world.root / file).write_bytes(kept[file])
    assert conclude(again) is Conclusion.SWITCHED
    assert world.files() == after


def test_a_new_file_beside_a_conflict_is_not_kept(work: Work) -> None:
    work.resolve(RESOLUTIONS[HOOK] | {"gamma/hooks.py": b"new\n"})
    work.proceed()
    assert work.session is not None
    assert [reason.partition(":")[0] for reason in work.session.not_recorded] == ["gamma/hooks.py"]


def test_the_lowest_rung_comes_first(world: World, tmp_path: Path) -> None:
    """The last patch of all is in conflict on v2.1, the first one on v2.2 only."""
    versions = b"def pack(): ...\n", b"def pack(): ...  # mine\n"
    _patch(world, tmp_path, "old-pack.patch", "gamma/old.py", *versions)
    with world.stores() as stores:
        found = rebase.rebase(stores, Request("gamma", "v2.2", with_required=True, through=("v2.1",)))
    stops = [(row.patch.ref.path, row.rung) for leg, row in found.open if leg.upstream == "gamma"]
    assert stops[:2] == [("two/gamma/old-pack.patch", "v2.1"), (HOOK, "v2.2")]


def _patch(world: World, tmp_path: Path, name: str, path: str, *versions: bytes) -> None:
    """Put a patch of gamma at the end of the second series."""
    repo = tmp_path / "made"
    user_git(tmp_path, "init", "--quiet", str(repo))
    for data in versions:
        (repo / path).parent.mkdir(exist_ok=True)
        (repo / path).write_bytes(data)
        user_git(repo, "add", "--all")
        user_git(repo, "commit", "--quiet", "-m", "Mine\n\nWhy.\n\nSigned-off-by: A Person <a@person>")
    show = ("format-patch", "-1", "--stdout", "--full-index", "--no-stat", "--no-signature", "--zero-commit")
    (world.root / f"stacks/two/gamma/{name}").write_text(user_git(repo, *show))
    last = 'file = "gamma/fix-limit.patch"\n'
    world.edit("stacks/two/series.toml", last, f'{last}[[patch]]\nupstream = "gamma"\nfile = "gamma/{name}"\n')


def test_of_a_partly_landed_patch_only_the_rest_is_resolved(world: World, tmp_path: Path) -> None:
    """Lines 35 and 36 landed and were changed again since; line 5 is in conflict."""
    flag = {20: "flag"}
    landed = {35: "thirty-five of mine", 36: "thirty-six of mine"}
    mine = {5: "five of mine"} | landed
    _patch(world, tmp_path, "both.patch", "gamma/tool.py", numbered("tool", flag), numbered("tool", flag | mine))
    clone = tmp_path / "gamma"
    address = re.search(r'\[gamma\]\ngit += "([^"]+)"', world.read("pins.toml"))
    assert address is not None
    user_git(tmp_path, "clone", "--quiet", address[1], str(clone))
    user_git(clone, "checkout", "--quiet", "v2.1")
    theirs = {5: "five of upstream"}
    for changes in (landed, landed | theirs, landed | theirs | {35: "thirty-five, reworked"}):
        (clone / "gamma/tool.py").write_bytes(numbered("tool", changes))
        user_git(clone, "commit", "--quiet", "--all", "-m", "Go on")
    user_git(clone, "tag", "v2.3")
    world.edit("pins.toml", address[0], address[0].replace(address[1], str(clone)))
    with world.stores("git") as stores:
        found = rebase.rebase(stores, Request("gamma", "v2.3", with_required=True))
        [(_, row)] = found.open
        assert (row.outcome, row.patch.ref.file) == (Outcome.PARTLY_LANDED, "gamma/both.patch")
        now = digest.exact(stores.stack)
        workspace.start(tmp_path / "work", stores, found, allow_mismatch=False, allow_drift=False, digest=now)
    text = (tmp_path / "work/gamma/tool.py").read_text()
    assert text.count("<<<<<<<") == 1
    assert "thirty-five, reworked\n" in text
    assert mine[35] not in text
