# SPDX-License-Identifier: Apache-2.0
import os
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model.ids import Sha256, TreeId
from stack.model.pins import SOURCES, Archive, Pin, Source, Within
from stack.store import archive, cache, git, indexes
from stack.store.sources import SourceTree, known_tags, obtain, version_of

from .factories import Remote, Server, listing, run_python, sdist, sha256, strays

STATED = b"5df63a720"
FILES = {"pkg/a.py": b"a\n", "pkg/_version.py": b"__version__ = version = '1.0'\n__commit_id__ = commit_id = 'g%s'\n" % STATED}


@pytest.fixture
def released(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    made = {
        version: sdist(tmp_path / f"served/pkg-{version}.tar.gz", FILES | {"v": version.encode()})
        for version in ("1.0", "1.1.post1")
    }
    server.offer(*made.values())
    monkeypatch.setenv("PIP_INDEX_URL", server.index)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setattr(indexes, "_pip_says", lambda: iter(()))  # starting pip takes longer than all else here
    return made


@pytest.fixture
def pin(released: dict[str, Path]) -> Pin:
    stated = Archive("pkg", "1.0", Sha256(sha256(released["1.0"])))
    return Pin("up", "https://git.test/up", STATED.decode(), "v1.0", stated, archive.tree_id(released["1.0"]))


def test_the_pinned_release(tmp_path: Path, server: Server, released: dict[str, Path], pin: Pin) -> None:
    told: list[tuple[str, int, int | None]] = []
    found = obtain(pin, cache=tmp_path / "c", progress=lambda *step: told.append(step))
    store = cache.upstream_store(tmp_path / "c", "up")
    assert found == SourceTree(
        "up", "v1.0", found.commit, archive.tree_id(released["1.0"]), "5df63a720", "1.0", pin.archive, "archive"
    )
    assert (
        git.text(["for-each-ref", "--format=%(objectname) %(refname)"], cwd=store) == f"{found.commit} refs/stack/archive/v1.0"
    )
    assert set(listing(store, found.commit)) == {b"pkg/a.py", b"pkg/_version.py", b"v"}
    assert list(dict.fromkeys(step for step, _, _ in told)) == ["downloading pkg-1.0.tar.gz", "importing pkg-1.0.tar.gz"]
    assert strays(store) == []


def test_a_version_is_not_a_tag(tmp_path: Path, pin: Pin) -> None:
    with pytest.raises(StackError, match=r"up has no tag 1\.1\.post1: its tags look like v1\.0"):
        obtain(pin, "1.1.post1", cache=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_second_time_nothing_is_asked(tmp_path: Path, server: Server, pin: Pin, monkeypatch: pytest.MonkeyPatch) -> None:
    first = obtain(pin, cache=tmp_path)
    asked = list(server.asked)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert obtain(pin, cache=tmp_path, progress=lambda *_: pytest.fail("worked")) == first
    assert obtain(pin, "v1.0", cache=tmp_path) == first
    assert server.asked == asked


def test_a_downloaded_archive_is_imported_without_asking(
    tmp_path: Path, released: dict[str, Path], pin: Pin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(StackError, match="no-index"):
        obtain(pin, cache=tmp_path)
    place = cache.archive(tmp_path, "pkg", "pkg-1.0.tar.gz")
    place.parent.mkdir(parents=True)
    place.write_bytes(released["1.0"].read_bytes())
    (place.parent / "other-1.0.tar.gz").write_bytes(released["1.0"].read_bytes())
    (place.parent / "nonsense.tar.gz").write_bytes(b"")
    assert obtain(pin, cache=tmp_path).version == "1.0"


def test_a_spoiled_download_is_fetched_again(tmp_path: Path, released: dict[str, Path], pin: Pin) -> None:
    place = cache.archive(tmp_path, "pkg", "pkg-1.0.tar.gz")
    place.parent.mkdir(parents=True)
    place.write_bytes(b"spoiled")
    assert obtain(pin, cache=tmp_path).version == "1.0"
    assert sha256(place) == sha256(released["1.0"])


def test_another_release_is_held_to_the_registrys_hash(
    tmp_path: Path, server: Server, released: dict[str, Path], pin: Pin
) -> None:
    found = obtain(pin, "v1.1.post1", cache=tmp_path / "c")
    assert found.archive == Archive("pkg", "1.1.post1", Sha256(sha256(released["1.1.post1"])))
    assert obtain(pin, "v1.1.post1", cache=tmp_path / "c") == found
    server.offer(*released.values(), lie="0" * 64)
    with pytest.raises(StackError, match=f"expected {'0' * 64}"):
        obtain(pin, "v1.1.post1", cache=tmp_path / "d")


def test_a_hash_that_nobody_states_is_computed(tmp_path: Path, server: Server, released: dict[str, Path], pin: Pin) -> None:
    server.offer(*released.values(), hashes=False)
    found = obtain(pin, "v1.1.post1", cache=tmp_path)
    assert found.archive is not None
    assert found.archive.sha256 == sha256(released["1.1.post1"])


def test_the_pin_decides_what_the_pinned_release_is(tmp_path: Path, pin: Pin) -> None:
    assert pin.archive is not None
    obtain(pin, cache=tmp_path)
    wrong_hash = replace(pin, archive=replace(pin.archive, sha256=Sha256("0" * 64)))
    with pytest.raises(StackError, match=f"no fitting source archive.*{'0' * 64}"):
        obtain(wrong_hash, cache=tmp_path)
    with pytest.raises(StackError, match=f"has the tree .*, pins.toml says {'1' * 40}"):
        obtain(replace(pin, tree=TreeId("1" * 40)), cache=tmp_path)
    with pytest.raises(StackError, match=r"up v1.0 is commit 5df63a720, pins.toml says abcdef123"):
        obtain(replace(pin, commit="abcdef123"), cache=tmp_path)
    assert obtain(replace(pin, commit="5df63a720" + "0" * 31), cache=tmp_path)  # the release states a prefix
    unpinned = replace(pin, tag="v9", commit="abcdef123", tree=TreeId("1" * 40))
    assert obtain(unpinned, "v1.0", cache=tmp_path).version == "1.0"


def test_a_pin_without_a_hash_takes_the_registrys(tmp_path: Path, released: dict[str, Path], pin: Pin) -> None:
    assert pin.archive is not None
    found = obtain(replace(pin, archive=replace(pin.archive, sha256=None)), cache=tmp_path)
    assert found.archive == pin.archive


@pytest.mark.parametrize(
    ("file", "content", "commit"),
    [
        ("pkg/_version.py", b"commit_id: str | None\n__commit_id__ = commit_id = 'g4ba787ec9'\n", "4ba787ec9"),
        ("pkg/_version.py", b'__commit_id__ = "4ba787ec9"\n', "4ba787ec9"),
        ("pkg/_version.py", b"__commit_id__ = commit_id = None\n", None),
        (
            "pkg/_build_meta.py",
            b'__version__ = "1"\n__git_commit__ = "946200de1ae94fc93fdd0926f0a13afd1fa7f0f1"\n',
            "946200de1ae94fc93fdd0926f0a13afd1fa7f0f1",
        ),
        (
            "pkg/_build_meta.py",
            b'__git_version__ = "f1e6fdcb8f65104047697f022b5d055ef022d763"\n',
            "f1e6fdcb8f65104047697f022b5d055ef022d763",
        ),
        ("pkg/_build_meta.py", b'__git_commit__ = "unknown"\n', None),
        ("other/_version.py", b"__commit_id__ = commit_id = 'g4ba787ec9'\n", "4ba787ec9"),
        ("deeper/down/_version.py", b"__commit_id__ = commit_id = 'g4ba787ec9'\n", None),
        ("_version.py", b"__commit_id__ = commit_id = 'g4ba787ec9'\n", None),
    ],
)
def test_the_commit_that_a_release_states(
    tmp_path: Path, server: Server, pin: Pin, file: str, content: bytes, commit: str | None
) -> None:
    server.offer(sdist(tmp_path / "pkg-3.0.tar.gz", {file: content, "z/_version.py": b"", "setup.py": b""}))
    assert obtain(pin, "v3.0", cache=tmp_path / "c").names_commit == commit


def test_the_upstreams_own_folder_is_asked_first(tmp_path: Path, server: Server, pin: Pin) -> None:
    files = {"aaa/_version.py": b"commit_id = 'g1111111'\n", "up/_version.py": b"commit_id = 'g2222222'\n"}
    server.offer(sdist(tmp_path / "pkg-3.0.tar.gz", files))
    assert obtain(pin, "v3.0", cache=tmp_path / "c").names_commit == "2222222"


def test_releases_that_do_not_exist(tmp_path: Path, pin: Pin) -> None:
    with pytest.raises(StackError, match=r"no source archive of pkg 0.99.0; newest: 1.1.post1, 1.0"):
        obtain(pin, "v0.99.0", cache=tmp_path)
    with pytest.raises(StackError, match="'nightly' names no version"):
        obtain(pin, "nightly", cache=tmp_path)
    with pytest.raises(StackError, match="lib has no release: fetch other: it is vendored there"):
        obtain(Pin("lib", "x", "1" * 40, within=Within("other", "3rdparty/lib")), cache=tmp_path)
    with pytest.raises(StackError, match="names no source archive for lib: use --source git"):
        obtain(Pin("lib", "x", "1" * 40, "v1"), cache=tmp_path, source="archive")


@pytest.mark.parametrize("tag", ["../v1", "-v1", "v1..2", "v 1", "v1.lock", "v1/", "v1\n", "v1.", "v1~1", "v1:x", "v1*"])
@pytest.mark.parametrize("source", SOURCES)
def test_tags_that_are_no_ref_names(tmp_path: Path, pin: Pin, tag: str, source: Source) -> None:
    with pytest.raises(StackError, match=r"is not a release tag|names no version"):
        obtain(pin, tag, cache=tmp_path, source=source)


def test_tags_and_versions(pin: Pin, tmp_path: Path) -> None:
    assert version_of(pin, "v0.7.2.post1") == "0.7.2.post1"
    assert version_of(pin, "0.7.2") == "0.7.2"
    assert version_of(replace(pin, tag="curl-8_5_0"), "curl-8_11_1") == "8_11_1"
    assert version_of(replace(pin, tags=r"rel/(?P<version>\d+_\d+)"), "rel/8_11") == "8.11"
    assert known_tags(pin, cache=tmp_path) == ["v1.0", "v1.1.post1"]
    assert known_tags(replace(pin, tag="1.0"), cache=tmp_path) == ["1.0", "1.1.post1"]
    assert known_tags(replace(pin, tag="release-1.0"), cache=tmp_path) == ["release-1.0", "release-1.1.post1"]
    with pytest.raises(StackError, match="names no source archive"):
        known_tags(replace(pin, archive=None), cache=tmp_path, source="archive")


def test_a_hostile_archive_leaves_nothing_in_the_store(tmp_path: Path, server: Server, pin: Pin) -> None:
    server.offer(sdist(tmp_path / "pkg-3.0.tar.gz", {"a": b"1", ".git/config": b"[core]\n"}))
    with pytest.raises(archive.ArchiveError, match=r"'.git'"):
        obtain(pin, "v3.0", cache=tmp_path / "c")
    store = cache.upstream_store(tmp_path / "c", "up")
    assert git.text(["for-each-ref"], cwd=store) == ""
    assert [*store.glob("objects/pack/*"), *strays(store)] == []


def test_a_damaged_store_is_not_worked_in(tmp_path: Path, pin: Pin) -> None:
    obtain(pin, cache=tmp_path)
    for pack in cache.upstream_store(tmp_path, "up").glob("objects/pack/*.pack"):
        pack.unlink()
    with pytest.raises(StackError, match="only a cache: delete that folder"):
        obtain(pin, cache=tmp_path)


def test_what_a_killed_run_left_does_not_hurt(tmp_path: Path, pin: Pin) -> None:
    obtain(pin, "v1.1.post1", cache=tmp_path)
    store = cache.upstream_store(tmp_path, "up")
    (store / "incoming-dead/objects").mkdir(parents=True)
    for lock in ("refs/stack/archive/v1.0.lock", "packed-refs.lock", "config.lock"):
        (store / lock).write_text("")
    obtain(pin, cache=tmp_path)
    assert strays(store) == []


LIMITED = """
import resource, sys
from pathlib import Path
from stack.model.pins import Archive, Pin
from stack.store import sources
sys.dont_write_bytecode = True  # it would be torn
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sources.obtain(Pin("up", "x", "5df63a720", "v1.0", Archive("pkg", "1.0", sys.argv[2])), cache=Path(sys.argv[1]))
"""


def test_git_that_may_not_write_so_much(tmp_path: Path, server: Server, pin: Pin) -> None:
    path = sdist(cache.archive(tmp_path, "pkg", "pkg-1.0.tar.gz"), FILES | {"big": os.urandom(200_000)})
    done = run_python(LIMITED, str(tmp_path), sha256(path))
    assert "GitError: git fast-import" in done.stderr
    store = cache.upstream_store(tmp_path, "up")
    assert git.text(["for-each-ref"], cwd=store) == ""
    assert [*store.glob("objects/pack/*"), *strays(store)] == []
    assert obtain(replace(pin, tree=None, archive=Archive("pkg", "1.0", Sha256(sha256(path)))), cache=tmp_path)


class TestGitSource:
    @pytest.fixture
    def vendored(self, tmp_path: Path) -> Remote:
        made = Remote(tmp_path / "lib")
        made.commit({"x.h": b"x\n"})
        return made

    @pytest.fixture
    def upstream(self, tmp_path: Path, vendored: Remote) -> Remote:
        made = Remote(tmp_path / "up")
        made.commit({"pkg/a.py": b"a\n"}, submodules={"3rdparty/lib": vendored.git("rev-parse", "HEAD")})
        made.tag("v1.0")
        made.commit({"pkg/a.py": b"b\n"})
        made.tag("v1.1")
        return made

    @pytest.fixture
    def pins(self, upstream: Remote, vendored: Remote) -> list[Pin]:
        return [
            Pin("up", upstream.url, upstream.git("rev-parse", "v1.0")[:9], "v1.0"),
            Pin("lib", vendored.url, vendored.git("rev-parse", "HEAD"), within=Within("up", "3rdparty/lib")),
        ]

    def test_the_pinned_release(self, tmp_path: Path, upstream: Remote, pins: list[Pin]) -> None:
        found = obtain(pins[0], cache=tmp_path / "c", source="git", vendored=pins)
        store = cache.upstream_store(tmp_path / "c", "up")
        real = upstream.git("rev-parse", "v1.0")
        tree = git.text(["rev-parse", f"{found.commit}^{{tree}}"], cwd=store)
        assert found == SourceTree("up", "v1.0", found.commit, TreeId(tree), real, "1.0", None, "git")
        assert set(listing(store, found.commit)) == {b"pkg/a.py", b"3rdparty/lib/x.h"}
        assert git.text(["rev-parse", f"{found.commit}^"], cwd=store) == real
        assert strays(store) == []

    def test_with_and_without_what_it_vendors(
        self, tmp_path: Path, upstream: Remote, vendored: Remote, pins: list[Pin]
    ) -> None:
        plain = obtain(pins[0], cache=tmp_path / "c", source="git")
        assert plain.commit == upstream.git("rev-parse", "v1.0")
        whole = obtain(pins[0], cache=tmp_path / "c", source="git", vendored=pins)
        assert whole.commit != plain.commit
        upstream.path.rename(tmp_path / "gone")
        vendored.path.rename(tmp_path / "gone too")
        assert obtain(pins[0], cache=tmp_path / "c", source="git") == plain
        assert obtain(pins[0], cache=tmp_path / "c", source="git", vendored=pins) == whole
        with pytest.raises(StackError, match="cannot be fetched"):
            obtain(pins[0], "v1.1", cache=tmp_path / "c", source="git")

    def test_other_releases_may_vendor_other_commits(
        self, tmp_path: Path, upstream: Remote, vendored: Remote, pins: list[Pin]
    ) -> None:
        newer = vendored.commit({"x.h": b"newer\n"})
        upstream.commit({}, submodules={"3rdparty/lib": newer})
        upstream.tag("v2.0")
        found = obtain(pins[0], "v2.0", cache=tmp_path / "c", source="git", vendored=pins)
        assert found.names_commit == upstream.git("rev-parse", "v2.0")

    def test_a_pin_that_the_remote_contradicts(self, tmp_path: Path, pins: list[Pin]) -> None:
        with pytest.raises(StackError, match=r"up v1.0 is commit .*, pins.toml says abcdef123: .*find out why its tag moved"):
            obtain(replace(pins[0], commit="abcdef123"), cache=tmp_path / "c", source="git")
        with pytest.raises(StackError, match=r"pins.toml says abcdef123: correct the commit of lib"):
            obtain(pins[0], cache=tmp_path / "c", source="git", vendored=[replace(pins[1], commit="abcdef123")])
        obtain(pins[0], cache=tmp_path / "c", source="git", vendored=pins)
        with pytest.raises(StackError, match=r"pins.toml says abcdef123"):
            obtain(replace(pins[0], commit="abcdef123"), cache=tmp_path / "c", source="git")
        with pytest.raises(StackError, match=r"pins.toml says abcdef123"):
            obtain(pins[0], cache=tmp_path / "c", source="git", vendored=[replace(pins[1], commit="abcdef123")])

    def test_a_tag_and_a_pin_that_moved_together(self, tmp_path: Path, upstream: Remote, pins: list[Pin]) -> None:
        obtain(pins[0], cache=tmp_path / "c", source="git")
        upstream.git("tag", "--force", "v1.0", "v1.1")
        moved = upstream.git("rev-parse", "v1.1")
        assert obtain(replace(pins[0], commit=moved), cache=tmp_path / "c", source="git").commit == moved

    def test_both_sources_share_a_store(
        self, tmp_path: Path, server: Server, released: dict[str, Path], pin: Pin, pins: list[Pin]
    ) -> None:
        both = replace(pin, git=pins[0].git, commit=pins[0].commit, tag="v1.0")
        by_git = obtain(both, cache=tmp_path / "c", source="git")
        by_archive = obtain(replace(both, commit=STATED.decode()), cache=tmp_path / "c")
        assert by_git.commit != by_archive.commit
        store = cache.upstream_store(tmp_path / "c", "up")
        assert git.run(["fsck"], cwd=store).returncode == 0
