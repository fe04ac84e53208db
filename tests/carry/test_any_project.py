# SPDX-License-Identifier: Apache-2.0
"""A project that no registry knows: git only, releases named `release-1.2.0`, pins by tag or by commit, branches."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import verify
from stack.carry.forecast import forecast
from stack.carry.outcome import Outcome
from stack.carry.rebase import Conclusion, Request, conclude, rebase, repinned, set_pins
from stack.carry.upstream_stores import Place, Stores
from stack.model import pins, switch
from stack.model import stack as stacks
from stack.store import cache

from ..store.factories import Remote
from .world import numbered

PATCH = "stacks/mine/web/answer-faster.patch"
SERIES = """\
title = "Answer faster"
why = "It is slow."
state = "draft"
[[patch]]
upstream = "web"
file = "web/answer-faster.patch"
"""


class Project:
    """A C project with releases in git, and a stack with one patch on the first one."""

    def __init__(self, place: Path) -> None:
        self.remote = Remote(place / "web-remote")
        self.cache = place / "cache"
        self.root = place / "stack"
        self.commits = {}
        for version, changed in (
            ("1.2.0", {}),
            ("1.10.0-rc1", {30: "rc"}),
            ("1.10.0", {30: "ten"}),
            ("1.11.0", {20: "twenty"}),
        ):
            self.commits[version] = self.remote.commit({"src/web.c": numbered("int", changed)}, f"Release {version}")
            self.remote.tag(f"release-{version}")
        self.remote.tag("vendor-99")
        self.commits["main"] = self.remote.commit({"src/web.c": numbered("int", {10: "fast", 20: "twenty"})}, "Be fast")
        self.remote.git("branch", "release-9.9.9", "release-1.10.0")
        self._write(place)

    def _write(self, place: Path) -> None:
        (self.root / "stacks/mine/web").mkdir(parents=True)
        (self.root / "stacks/stack.toml").write_text('series = ["mine"]\n')
        (self.root / "stacks/mine/series.toml").write_text(SERIES)
        self.pin('tag = "release-1.2.0"')
        fork = Remote(place / "fork")
        fork.git("fetch", "--quiet", self.remote.url, "release-1.2.0")
        fork.git("reset", "--quiet", "--hard", "FETCH_HEAD")
        fork.commit({"src/web.c": numbered("int", {10: "fast"})}, "Answer faster\n\nSigned-off-by: A <a@b>")
        form = ("--full-index", "--no-stat", "--no-signature", "--zero-commit", "--stdout")
        (self.root / PATCH).write_text(fork.git("format-patch", *form, "-1") + "\n")

    def pin(self, more: str, version: str = "1.2.0") -> None:
        text = f'[web] # ours\ngit = "{self.remote.url}"\ncommit = "{self.commits[version]}"\n{more}\n'
        (self.root / "pins.toml").write_text(text)

    @contextmanager
    def stores(self) -> Iterator[Stores]:
        with Stores(stacks.load(self.root), Place(self.cache)) as stores:
            yield stores

    def rebase(self, revision: str, *, through: tuple[str, ...] = ()) -> tuple[list[Outcome], list[str], pins.Pin]:
        with self.stores() as stores:
            work = rebase(stores, Request("web", stores.resolve("web", revision), through=through))
            ended = conclude(work)
            assert ended in (Conclusion.SWITCHED, Conclusion.UNCHANGED)
            (leg,) = work.legs
            return [row.outcome for row in leg.carry.rows], [rung.name for rung in leg.carry.rungs], self.pinned()

    def pinned(self) -> pins.Pin:
        return stacks.load(self.root).pins.get("web")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("project")
    Project(place)
    return place


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Project:
    """A project of its own; the remote is shared."""
    project = Project.__new__(Project)
    project.remote = Remote.__new__(Remote)
    project.remote.path = made / "web-remote"
    project.remote.url = f"file://{made / 'web-remote'}"
    project.cache, project.root = tmp_path / "cache", tmp_path / "stack"
    shutil.copytree(made / "stack", project.root)
    tags = {version: f"release-{version}" for version in ("1.2.0", "1.10.0-rc1", "1.10.0", "1.11.0")} | {"main": "main"}
    project.commits = {version: project.remote.git("rev-parse", tag) for version, tag in tags.items()}
    return project


def test_onto_a_release(project: Project) -> None:
    outcomes, rungs, pin = project.rebase("release-1.10.0")
    assert (outcomes, rungs) == ([Outcome.CLEAN], ["release-1.10.0"])
    assert (pin.tag, pin.commit, pin.archive) == ("release-1.10.0", project.commits["1.10.0"], None)
    assert (project.root / "pins.toml").read_text().startswith("[web] # ours\n")


def test_through_all_releases_in_their_order(project: Project) -> None:
    assert project.rebase("release-1.11.0", through=("auto",))[1] == ["release-1.10.0", "release-1.11.0"]


def test_through_the_releases_below_a_branch_or_above_a_commit(project: Project) -> None:
    """An end without a version has a place in the history: the releases between are those of its ancestors."""
    main = project.commits["main"]
    project.pin('tags = "release-*"')
    with project.stores() as stores:
        (leg,) = rebase(stores, Request("web", main, through=("auto",))).legs
    assert [rung.name for rung in leg.carry.rungs] == ["release-1.10.0", "release-1.11.0", main]
    project.pin('tags = "release-*"', "1.10.0")
    with project.stores() as stores:
        (leg,) = rebase(stores, Request("web", "release-1.11.0", through=("auto",))).legs
    assert [rung.name for rung in leg.carry.rungs] == ["release-1.11.0"]


def test_a_pattern_says_what_a_release_is(project: Project) -> None:
    project.pin(r"""tag = "release-1.2.0"
tags = 'release-(?P<version>\d+\.\d+\.\d+(-rc\d+)?)'""")
    assert project.rebase("release-1.11.0", through=("auto",))[1] == ["release-1.10.0", "release-1.11.0"]
    project.pin('tag = "release-1.2.0"\ntags = "v*"')
    assert project.rebase("release-1.11.0", through=("auto",))[1] == ["release-1.11.0"]


def test_onto_a_commit_or_a_branch_the_pin_has_no_tag(project: Project) -> None:
    _, rungs, pin = project.rebase(project.commits["1.10.0"])
    assert (pin.tag, pin.commit, pin.archive, rungs) == (None, project.commits["1.10.0"], None, [project.commits["1.10.0"]])
    assert switch.undo(project.root)
    outcomes, _, pin = project.rebase("main")
    assert (outcomes, pin.tag, pin.commit) == ([Outcome.LANDED], None, project.commits["main"])


def test_from_a_pin_by_commit_alone(project: Project) -> None:
    project.pin("")
    assert project.pinned().revision == project.commits["1.2.0"]
    outcomes, _, pin = project.rebase("release-1.11.0")
    assert (outcomes, pin.tag, pin.commit) == ([Outcome.CLEAN], "release-1.11.0", project.commits["1.11.0"])


def test_a_short_commit_is_completed_and_a_wrong_one_refused(project: Project) -> None:
    project.pin("")
    text = (project.root / "pins.toml").read_text()
    (project.root / "pins.toml").write_text(text.replace(project.commits["1.2.0"], project.commits["1.2.0"][:9]))
    with project.stores() as stores:
        assert stores.obtain("web").commit == project.commits["1.2.0"]
        new, unmet = repinned(stores, "web", project.commits["1.10.0"][:10])
        assert set_pins(stores.stack, new, unmet, title="t", allow_mismatch=False)
    assert (project.pinned().commit, project.pinned().tag) == (project.commits["1.10.0"], None)
    (project.root / "pins.toml").write_text(text.replace(project.commits["1.2.0"], "123456789"))
    with project.stores() as stores, pytest.raises(StackError, match="has no commit 123456789"):
        stores.obtain("web")


def test_a_tag_counts_before_a_branch_of_the_same_name(project: Project) -> None:
    project.remote.git("branch", "--force", "release-1.11.0", "release-1.2.0")
    try:
        _, _, pin = project.rebase("release-1.11.0")
    finally:
        project.remote.git("branch", "-D", "release-1.11.0")
    assert (pin.tag, pin.commit) == ("release-1.11.0", project.commits["1.11.0"])


def test_the_newest_state_of_its_default_branch(project: Project) -> None:
    with project.stores() as stores:
        (found,) = forecast(stores, None, "nightly")
    assert (found.revision, found.breaks) == (project.commits["main"], False)


def test_pins_are_verified_in_git_alone(project: Project) -> None:
    checks = verify.verify(stacks.load(project.root), Place(project.cache))
    assert [(check.field, check.holds) for check in checks] == [("commit", True), ("tag", True)]
    project.pin('tag = "release-1.2.0"', "1.10.0")
    checks = verify.verify(stacks.load(project.root), Place(project.cache))
    first = project.commits["1.2.0"]
    assert [(check.field, check.found, check.holds) for check in checks] == [("commit", first, False), ("tag", first, True)]


def test_another_project_of_the_same_name_is_fetched_anew(project: Project, tmp_path: Path) -> None:
    with project.stores() as stores:
        stores.obtain("web")
    other = Remote(tmp_path / "other")
    commit = other.commit({"a": b"1\n"})
    other.tag("release-1.2.0")
    (project.root / "pins.toml").write_text(f'[web]\ngit = "{other.url}"\ncommit = "{commit}"\ntag = "release-1.2.0"\n')
    with project.stores() as stores:
        assert stores.obtain("web").commit == commit
    assert cache.upstream_store(project.cache, "web").is_dir()
