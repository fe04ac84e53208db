# SPDX-License-Identifier: Apache-2.0
"""A stack begins with its first upstream, and takes in more; a pin is right, or nothing is written."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.carry import beginning, beginning_files
from stack.carry.beginning import Begun
from stack.carry.upstream_stores import Place, Stores
from stack.model import pins, switch
from stack.model import stack as stacks
from stack.model.pins import Archive, Within
from stack.store import cache, git

from ..store.factories import Remote
from .world import World

FILES = [".gitignore", "pins.toml", "stacks/stack.toml"]


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    made = Remote(tmp_path / "web-server.git")
    for version in ("1.9.0", "1.27.1", "1.31.4", "1.32.0-rc1"):
        made.commit({"src/web.c": f"{version}\n".encode()}, version)
        made.tag(f"release-{version}", annotated=version == "1.27.1")
    made.tag("vendor-99")
    made.commit({"src/web.c": b"main\n"}, "on the way")
    return made


def begin(tmp_path: Path, git: str, upstream: str | None = None, *, reference: Path | None = None, **given: Any) -> Begun:
    wanted = beginning.wish(upstream, git, here=tmp_path, **given)
    place = Place(tmp_path / "cache")
    return beginning.begin(tmp_path / "fork", wanted, beginning.find(wanted, place), place, reference=reference)


def files(root: Path) -> dict[str, bytes]:
    every = (path for path in root.rglob("*") if path.is_file() and ".stack" not in path.relative_to(root).parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in every}


def test_the_newest_release(tmp_path: Path, remote: Remote) -> None:
    begun = begin(tmp_path, remote.url)
    stack = stacks.load(tmp_path / "fork")
    (pin,) = stack.pins
    assert (pin.upstream, pin.git, pin.tag, pin.source) == ("web-server", remote.url, "release-1.31.4", "git")
    assert pin.commit == remote.git("rev-parse", "release-1.31.4")
    assert (pin.tags, pin.archive, stack.series) == (None, None, ())
    assert sorted(files(tmp_path / "fork")) == FILES
    assert (sorted(begun.written), begun.added, begun.newest) == (FILES, False, "release-1.31.4")
    with Stores(stack, Place(tmp_path / "cache")) as stores:
        assert stores.base("web-server") == pin.commit


def test_a_tag_is_pinned_with_its_commit(tmp_path: Path, remote: Remote) -> None:
    pin = begin(tmp_path, remote.url, "web", tag="release-1.27.1").pin
    assert (pin.tag, pin.commit) == ("release-1.27.1", remote.git("rev-parse", "release-1.27.1^{commit}"))


@pytest.mark.parametrize("revision", ["main", "release-1.9.0", "short", "full"])
def test_a_commit_or_a_branch_is_pinned_without_a_tag(tmp_path: Path, remote: Remote, revision: str) -> None:
    commit = remote.git("rev-parse", "main" if revision == "main" else "release-1.9.0")
    given = {"short": commit[:9], "full": commit}.get(revision, revision)
    if revision == "release-1.9.0":
        with pytest.raises(StackError, match=r"release-1\.9\.0 is a tag: name it with --tag"):
            begin(tmp_path, remote.url, "web", commit=given)
        return
    pin = begin(tmp_path, remote.url, "web", commit=given).pin
    assert (pin.tag, pin.commit, pin.tags) == (None, commit, "release-*")
    assert stacks.load(tmp_path / "fork").pins.get("web").releases.version("release-1.2") is not None


def test_a_rule_for_tags_is_kept(tmp_path: Path, remote: Remote) -> None:
    pin = begin(tmp_path, remote.url, "web", tags="vendor-*").pin
    assert (pin.tag, pin.tags) == ("vendor-99", "vendor-*")


def test_a_local_path_without_partial_clones(tmp_path: Path, remote: Remote) -> None:
    """The remote sends all files, since it cannot leave them out; the store then has them, and needs the remote no more."""
    remote.git("config", "--unset-all", "uploadpack.allowFilter")
    assert begin(tmp_path, "web-server.git").pin.git == str(remote.path)
    remote.path.rename(tmp_path / "gone")
    with Stores(stacks.load(tmp_path / "fork"), Place(tmp_path / "cache")) as stores:
        objects = stores.objects("web-server")
        entry = objects.entry(objects.tree_of(stores.base("web-server")), "src/web.c")
        assert entry is not None
        assert objects.read(entry.id) == b"1.31.4\n"


def test_a_path_with_a_blank(tmp_path: Path, remote: Remote) -> None:
    remote.path.rename(tmp_path / "my project")
    pin = begin(tmp_path, "my project").pin
    assert (pin.upstream, pin.git) == ("my-project", f"file://{tmp_path}/my%20project")


def test_a_second_upstream_comes_into_the_same_stack(tmp_path: Path, remote: Remote) -> None:
    begin(tmp_path, remote.url, "web")
    (tmp_path / "fork/pins.toml").write_text(f"# Mine.\n{(tmp_path / 'fork/pins.toml').read_text()}")
    before = files(tmp_path / "fork")
    other = Remote(tmp_path / "tool")
    other.commit({"a": b"a\n"})
    other.tag("v1.2.3-rc.1")
    other.tag("v1.2.3")
    begun = begin(tmp_path, other.url)
    assert (begun.added, begun.written, begun.pin.tag) == (True, ("pins.toml",), "v1.2.3")
    after = files(tmp_path / "fork")
    assert after["pins.toml"].startswith(before["pins.toml"])
    assert stacks.load(tmp_path / "fork").pins.names() == ("web", "tool")
    switch.undo(tmp_path / "fork")
    assert files(tmp_path / "fork") == before


def test_an_upstream_that_is_pinned_already(tmp_path: Path, remote: Remote) -> None:
    begin(tmp_path, remote.url, "web")
    before = files(tmp_path / "fork")
    with pytest.raises(StackError, match=r"web has a pin already \(release-1.31.4\): move it .* stack rebase web --onto REV"):
        begin(tmp_path, remote.url, "web", tag="release-1.27.1")
    assert files(tmp_path / "fork") == before


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tag": "release-1.27"}, "has no tag release-1.27: did you mean 'release-1.27.1'?"),
        ({"commit": "0" * 40}, "has no commit 0000"),
        ({"tags": "v*"}, r"has no release tag like v\*: name a --tag or a --commit; it has the tags"),
        ({"tag": "v1", "commit": "main"}, "--tag and --commit exclude each other"),
        ({"package": "web", "commit": "main"}, "--package and --commit exclude each other"),
        ({"within": "web"}, "names no upstream and path: write it as UPSTREAM:PATH"),
        ({"within": "web:3rd/x"}, "there is no upstream 'web' yet"),
        ({"within": "web:3rd/x", "tags": "v*"}, "--within excludes --package and --tags"),
        ({"tags": "("}, "is not a regular expression"),
        ({"upstream": "Web"}, "'Web' is not a valid name of an upstream"),
        ({"upstream": "base"}, "is the table of the base image"),
        ({"reference": "nothing"}, "is not a folder"),
    ],
)
def test_refused_with_nothing_written(tmp_path: Path, remote: Remote, given: Mapping[str, Any], problem: str) -> None:
    more = dict(given)
    if "reference" in more:
        more["reference"] = tmp_path / more["reference"]
    with pytest.raises(StackError, match=problem):
        begin(tmp_path, remote.url, more.pop("upstream", "web-2"), **more)
    assert not (tmp_path / "fork").exists()


def test_a_tag_that_pins_toml_cannot_hold(tmp_path: Path, remote: Remote) -> None:
    remote.tag("web@9.0")
    with pytest.raises(StackError, match="is not a release tag"):
        begin(tmp_path, remote.url, "web", tag="web@9.0")
    assert not (tmp_path / "fork").exists()


def test_what_a_person_has_written_there_is_kept(tmp_path: Path, remote: Remote) -> None:
    root = tmp_path / "fork"
    (root / "stacks").mkdir(parents=True)
    (root / ".gitignore").write_text("*.o")
    (root / "stacks/stack.toml").write_text("# mine\nseries = []\n")
    assert begin(tmp_path, remote.url).written == ("pins.toml", ".gitignore")
    assert (root / ".gitignore").read_text() == "*.o\n.stack/\n"
    assert (root / "stacks/stack.toml").read_text() == "# mine\nseries = []\n"


@pytest.mark.parametrize("name", [".gitignore", "stacks", "pins.toml"])
def test_nothing_is_written_through_a_link(tmp_path: Path, remote: Remote, name: str) -> None:
    root, elsewhere = tmp_path / "fork", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (root / name).symlink_to(elsewhere / "x" if name != "stacks" else elsewhere)
    if name == "pins.toml":
        (root / "stacks").mkdir()
        (root / "stacks/stack.toml").write_text("series = []")
    with pytest.raises(StackError, match="link"):
        begin(tmp_path, remote.url)
    assert list(elsewhere.iterdir()) == []
    assert name == "pins.toml" or [path.name for path in root.iterdir()] == [name]


def test_a_folder_inside_of_a_stack(tmp_path: Path) -> None:
    (tmp_path / "pins.toml").touch()
    inner = tmp_path / "stacks/mine"
    inner.mkdir(parents=True)
    with pytest.raises(StackError, match="lies in the stack"):
        beginning_files.folder(None, inner)
    assert beginning_files.folder(Path(), inner) == Path()
    assert beginning_files.folder(None, tmp_path) == tmp_path


def test_the_clone_that_lends_its_objects(tmp_path: Path, remote: Remote) -> None:
    git.run(["clone", "--quiet", remote.url, str(tmp_path / "clone")])
    begin(tmp_path, remote.url, "web", reference=tmp_path / "clone")
    blob = remote.git("rev-parse", "release-1.9.0:src/web.c")
    env = {"GIT_DIR": str(cache.upstream_store(tmp_path / "cache", "web")), "GIT_ALLOW_PROTOCOL": "none"}
    assert git.text(["cat-file", "blob", blob], env=env) == "1.9.0"


def test_with_the_package_of_the_registry(world: World, tmp_path: Path) -> None:
    gamma = world.load().pins.get("gamma")
    wanted = beginning.wish("gamma", gamma.git, here=tmp_path, tag="v2.0", package="gamma-pkg")
    place = Place(tmp_path / "cache")
    found = beginning.find(wanted, place)
    pin = beginning.begin(tmp_path / "fork", wanted, found, place).pin
    assert (pin.archive, pin.tree, pin.tag, pin.tags) == (gamma.archive, gamma.tree, "v2.0", None)
    assert pin.commit == world.commits["gamma v2.0"]
    assert found.newest == "v2.2"
    assert pins.load(tmp_path / "fork/pins.toml").get("gamma").source == "archive"
    assert beginning.package_of(wanted, found, "v2.0") is None  # no package has the upstream's name


def test_without_the_remote_the_archive_says_what_it_knows(world: World, tmp_path: Path) -> None:
    wanted = beginning.wish("gamma", "https://127.0.0.1:1/none", here=tmp_path, package="gamma-pkg")
    place = Place(tmp_path / "cache")
    found = beginning.find(wanted, place)
    pin = beginning.begin(tmp_path / "fork", wanted, found, place).pin
    assert (pin.tag, pin.archive and pin.archive.version) == ("v2.2", "2.2")
    assert world.commits["gamma v2.2"].startswith(pin.commit)


def test_the_package_of_another_project(world: World, tmp_path: Path) -> None:
    alpha = world.load().pins.get("alpha")
    stranger = Remote(tmp_path / "stranger")
    stranger.commit({"x": b"x\n"})
    stranger.tag("v1.0")
    with pytest.raises(StackError, match=r"was made from commit .*: check --package and --git: they may be different projects"):
        wanted = beginning.wish("alpha", stranger.url, here=tmp_path, tag="v1.0", package="alpha-pkg")
        beginning.begin(tmp_path / "fork", wanted, beginning.find(wanted, Place(tmp_path / "c")), Place(tmp_path / "c"))
    assert alpha.archive == Archive("alpha-pkg", "1.0", alpha.archive and alpha.archive.sha256)
    assert not (tmp_path / "fork").exists()


def test_a_vendored_upstream_gets_the_commit_that_its_holder_names(tmp_path: Path) -> None:
    inner, outer = Remote(tmp_path / "inner"), Remote(tmp_path / "outer")
    commit = inner.commit({"x.h": b"x\n"})
    inner.tag("v4.5")
    inner.commit({"x.h": b"y\n"})
    inner.tag("v4.6")
    outer.commit({"a": b"a\n"}, submodules={"3rd/inner": commit})
    outer.tag("v1.0")
    begin(tmp_path, outer.url)
    for wrong, why in (({"within": "outer:3rd/none"}, "has no 3rd/none"), ({"tag": "v4.6"}, "has commit .* at 3rd/inner, not")):
        with pytest.raises(StackError, match=why):
            begin(tmp_path, inner.url, **{"within": "outer:3rd/inner", **wrong})
    pin = begin(tmp_path, inner.url, within="outer:3rd/inner/").pin
    assert (pin.commit, pin.tag, pin.within) == (commit, None, Within("outer", "3rd/inner"))
    with Stores(stacks.load(tmp_path / "fork"), Place(tmp_path / "cache")) as stores:
        assert "x.h" in stores.objects("inner").entries(stores.objects("inner").tree_of(stores.base("inner")))


EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.link"}


@pytest.mark.parametrize("there", [False, True])
def test_killed_at_each_step_it_leaves_a_whole_stack_or_none(tmp_path: Path, remote: Remote, there: bool) -> None:
    """The files are written in a child that kills itself at step after step; then the same is done again, to its end."""
    pin = begin(tmp_path, remote.url, "web").pin
    written = files(tmp_path / "fork")
    steps = 0
    for step in range(1, 200):
        root = tmp_path / f"killed-{step}"
        if there:
            beginning_files.write(root, None, pin)
        old = files(root)
        child = os.fork()
        if child == 0:
            killed_at(step, partial(add, root, pin, there))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, -signal.SIGKILL)
        if (root / "pins.toml").exists():
            switch.recover(root)
            names = stacks.load(root).pins.names()
            assert names in ((("web",), ("web", "more")) if there else (("web",),))
            if not there:
                assert {name: data for name, data in files(root).items() if not name.endswith(".part")} == written
        if there and files(root) != old:
            switch.undo(root)
        if not (root / "pins.toml").exists() or there:
            add(root, pin, there)
        assert (root / "stacks/stack.toml").exists()
        assert not list(root.rglob(".*.part"))
        steps = step
        if status == 0:
            break
    assert 5 < steps < 199


def killed_at(step: int, action: Callable[[], None]) -> None:
    """End this process at a step of the action, or after it; never return."""
    left = [step]

    def count(event: str, _: object) -> None:
        left[0] -= event in EVENTS
        if left[0] == 0 and event in EVENTS:
            os.kill(os.getpid(), signal.SIGKILL)

    status = 1
    try:
        sys.addaudithook(count)
        action()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def add(root: Path, pin: pins.Pin, there: bool) -> None:
    """Begin a stack, or add another upstream to it."""
    if there:
        beginning_files.write(root, stacks.load(root), pins.Pin("more", pin.git, pin.commit))
    else:
        beginning_files.write(root, None, pin)
