# SPDX-License-Identifier: Apache-2.0
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.model import paths
from stack.model.ids import Sha256
from stack.store import archive, git, repository
from stack.store.archive import ArchiveError, Limits, Release, import_archive, tree_id

from .factories import TIME, TOP, bare, blob, listing, member, pax, sdist, sha256, strays
from .factories import archive as raw

RELEASE = Release("pkg", "1.0", "pkg-1.0.tar.gz")
REF = "refs/stack/archive/v1.0"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return bare(tmp_path / "repo.git")


def path_of(tmp_path: Path) -> Path:
    return tmp_path / RELEASE.filename


def test_a_release_becomes_one_commit_without_a_parent(tmp_path: Path, repo: Path) -> None:
    files = {"a.py": b"1\n", "pkg/b c.py": b"2\n", "pkg/deep/run.sh": b"3\n", '"quoted"': b"4\n", "ü": b"", "pkg-x": b"sorts"}
    path = sdist(path_of(tmp_path), files, programs=("pkg/deep/run.sh",))
    found = import_archive(path, repo, REF, RELEASE, expected_sha256=sha256(path))
    assert listing(repo, REF) == {
        name.encode(): (b"100755" if name.endswith(".sh") else b"100644", blob(content)) for name, content in files.items()
    }
    assert found.tree == tree_id(path) == git.text(["rev-parse", f"{REF}^{{tree}}"], cwd=repo)
    assert found.sha256 == sha256(path)
    assert git.text(["cat-file", "commit", REF], cwd=repo) == (
        f"tree {found.tree}\n"
        f"author stack <stack@localhost> {TIME} +0000\ncommitter stack <stack@localhost> {TIME} +0000\n\n"
        "pkg 1.0, from its source archive\n\n"
        f"Archive: pkg-1.0.tar.gz\nSha256: {found.sha256}\nPackage: pkg\nVersion: 1.0"
    )
    assert git.run(["fsck", "--strict"], cwd=repo).returncode == 0


def test_the_same_archive_gives_the_same_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sdist(path_of(tmp_path), {"a": b"1"})
    first = import_archive(path, bare(tmp_path / "1.git"), REF, RELEASE)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Someone")
    second = import_archive(path, bare(tmp_path / "2.git"), REF, RELEASE)
    assert first == second


def test_links_are_kept_and_hard_links_become_files(tmp_path: Path, repo: Path) -> None:
    path = raw(
        path_of(tmp_path),
        member(b"./pkg-1.0/", b"", b"5"),
        member(b"./pkg-1.0/a", b"one", mode=b"0000755\0"),
        member(b"./pkg-1.0/d/soft", b"", b"2", b"../a"),
        member(b"./pkg-1.0/d/hard", b"", b"1", b"./pkg-1.0/a"),
        member(b"./pkg-1.0/d/harder", b"", b"1", b"./pkg-1.0/d/hard"),
        member(b"./pkg-1.0/d/both", b"", b"1", b"./pkg-1.0/d/soft"),
        member(b"./pkg-1.0/empty/", b"", b"5"),
    )
    found = import_archive(path, repo, REF, RELEASE)
    assert listing(repo, REF) == {
        b"a": (b"100755", blob(b"one")),
        b"d/soft": (b"120000", blob(b"../a")),
        b"d/hard": (b"100755", blob(b"one")),
        b"d/harder": (b"100755", blob(b"one")),
        b"d/both": (b"120000", blob(b"../a")),
    }
    assert found.tree == tree_id(path)


def test_names_that_differ_in_case_only_are_two_files(tmp_path: Path, repo: Path) -> None:
    path = sdist(path_of(tmp_path), {"A": b"1", "a": b"2"})
    assert import_archive(path, repo, REF, RELEASE).tree == tree_id(path)


def test_dates_that_no_clock_shows(tmp_path: Path, repo: Path) -> None:
    path = raw(path_of(tmp_path), pax({b"mtime": b"-5.5"}), member(b"p/a"), pax({b"mtime": b"99999999999"}), member(b"p/b"))
    import_archive(path, repo, REF, RELEASE)
    assert git.text(["log", "-1", "--format=%at %ct", REF], cwd=repo) == "2147483647 2147483647"
    path = raw(path_of(tmp_path), pax({b"mtime": b"-5.5"}), member(b"p/a"))
    import_archive(path, bare(tmp_path / "2.git"), REF, RELEASE)
    assert git.text(["log", "-1", "--format=%at", REF], cwd=tmp_path / "2.git") == "0"


P = TOP.encode() + b"/"
REFUSED = {
    "absolute": ([member(b"/etc/passwd")], "absolute"),
    "drive": ([member(b"C:/x")], "absolute"),
    "climbing": ([member(P + b"../../x")], "climbs"),
    "climbing at once": ([member(b"../x")], "climbs"),
    "top is dots": ([member(b"../", b"", b"5")], "climbs"),
    "nul": ([pax({b"path": P + b"a\0b"}), member(b"x")], "control"),
    "newline": ([member(P + b"a\nb")], "control"),
    "backslash": ([member(P + b"..\\x")], "backslash"),
    "empty name": ([member(b"")], "empty"),
    "empty pax name": ([pax({b"path": b""}), member(b"x")], "empty"),
    "file named as a folder": ([member(P + b"a/")], "empty component"),
    "git": ([member(P + b".git/hooks/post-checkout")], ".git"),
    "git in capitals": ([member(P + b"sub/.GIT/config")], ".git"),
    "git on ntfs": ([member(P + b"git~1/config")], ".git"),
    "git on hfs": ([member(P + ".g\u200cit/config".encode())], ".git"),
    "git as top": ([member(b".git/config")], ".git"),
    "git through pax": ([pax({b"path": P + b".git/x"}), member(P + b"harmless")], ".git"),
    "second top": ([member(P + b"a"), member(b"other/b")], "outside"),
    "file beside top": ([member(P + b"a"), member(b"b")], "outside"),
    "only a file": ([member(b"a")], "outside"),
    "top is a link": ([member(TOP.encode(), b"", b"2", b"..")], "outside"),
    "link out": ([member(P + b"l", b"", b"2", b"../x")], "out of the archive"),
    "link to absolute": ([member(P + b"l", b"", b"2", b"/etc/passwd")], "absolute"),
    "link through pax": ([pax({b"linkpath": b"../../x"}), member(P + b"l", b"", b"2", b"a")], "out of the archive"),
    "link to git": ([member(P + b"l", b"", b"2", b".git/hooks")], "into '.git'"),
    "link as gitmodules": ([member(P + b".gitmodules", b"", b"2", b"a")], "git reads"),
    "file through a link": ([member(P + b"l", b"", b"2", b"d"), member(P + b"l/x")], "file and a folder"),
    "hard link out": ([member(P + b"l", b"", b"1", b"../../etc/passwd")], "climbs"),
    "hard link to absolute": ([member(P + b"l", b"", b"1", b"/etc/passwd")], "absolute"),
    "hard link to nothing": ([member(P + b"l", b"", b"1", P + b"a")], "not an earlier file"),
    "hard link to later": ([member(P + b"l", b"", b"1", P + b"a"), member(P + b"a")], "not an earlier file"),
    "hard link to another top": ([member(P + b"a"), member(P + b"l", b"", b"1", b"other/a")], "not an earlier file"),
    "hard link to a folder": ([member(P + b"d/", b"", b"5"), member(P + b"l", b"", b"1", P + b"d")], "not an earlier file"),
    "device": ([member(P + b"d", b"", b"3")], "device"),
    "pipe": ([member(P + b"d", b"", b"6")], "named pipe"),
    "sparse": ([member(P + b"d", b"", b"S")], "sparse"),
    "twice": ([member(P + b"a"), member(P + b"a")], "twice"),
    "twice as a link": ([member(P + b"a"), member(P + b"a", b"", b"2", b"b")], "twice"),
    "file then folder": ([member(P + b"a"), member(P + b"a/", b"", b"5")], "twice"),
    "folder then file": ([member(P + b"a/", b"", b"5"), member(P + b"a")], "twice"),
    "file then file below": ([member(P + b"a"), member(P + b"a/b")], "file and a folder"),
    "file below then file": ([member(P + b"a/b/c"), member(P + b"a/b")], "twice"),
    "nothing": ([], "holds no file"),
    "empty top": ([member(P, b"", b"5")], "holds no file"),
}


ALONE = {"top is dots", "git as top", "only a file", "top is a link", "nothing", "empty top"}
"""Cases about the archive's first member; the others come after a sound file."""


@pytest.mark.parametrize("case", REFUSED)
def test_hostile_members_are_refused_and_leave_nothing(tmp_path: Path, store: Path, case: str) -> None:
    members, why = REFUSED[case]
    path = raw(path_of(tmp_path), *([] if case in ALONE else [member(P + b"first")]), *members)
    with pytest.raises(ArchiveError, match=why):
        tree_id(path)
    with pytest.raises(ArchiveError, match=why) as caught, repository.incoming(store) as place:
        import_archive(path, place, REF, RELEASE)
    assert caught.value.problem.startswith("pkg-1.0.tar.gz: ")
    assert caught.value.remedy
    assert git.text(["for-each-ref"], cwd=store) == ""
    assert [*store.glob("objects/pack/*"), *strays(store)] == []


def test_a_small_part_of_an_archive_is_refused_and_leaves_nothing(tmp_path: Path, store: Path) -> None:
    path = sdist(path_of(tmp_path), {f"f{number}": bytes([number]) * 5000 for number in range(50)})
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(ArchiveError, match="ends in the middle"), repository.incoming(store) as place:
        import_archive(path, place, REF, RELEASE)
    assert [*store.glob("objects/pack/*"), *strays(store)] == []


def test_limits_reach_the_reader(tmp_path: Path, repo: Path) -> None:
    path = sdist(path_of(tmp_path), {"a": b"1" * 100, "b": b""})
    with pytest.raises(ArchiveError, match="more than 1 members"):
        import_archive(path, repo, REF, RELEASE, limits=Limits(members=1))
    with pytest.raises(ArchiveError, match="larger than 99 bytes"):
        tree_id(path, limits=Limits(file=99))


def test_another_archive_than_expected(tmp_path: Path, repo: Path) -> None:
    path = sdist(path_of(tmp_path), {"a": b"1"})
    with pytest.raises(ArchiveError, match=f"{sha256(path)}, expected {'0' * 64}"):
        import_archive(path, repo, REF, RELEASE, expected_sha256=Sha256("0" * 64))
    assert git.text(["for-each-ref"], cwd=repo) == ""


def test_an_archive_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be read: No such file"):
        tree_id(tmp_path / "missing.tar.gz")


def test_what_git_wrote_is_compared(tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sdist(path_of(tmp_path), {"a": b"1", "b": b"2"})
    real = archive._quoted
    monkeypatch.setattr(archive, "_quoted", lambda name: b"other" if name == b"b" else real(name))
    with pytest.raises(StackError, match="git made the tree"):
        import_archive(path, repo, REF, RELEASE)


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    path = sdist(path_of(tmp_path), {"a": b"1"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(git.GitError, match="fast-import"):
        import_archive(path, tmp_path / "empty", REF, RELEASE)


def test_progress_ends_at_the_archives_size(tmp_path: Path, repo: Path) -> None:
    path = sdist(path_of(tmp_path), {"a": b"1", "b": b"2"})
    told: list[tuple[int, int | None]] = []
    import_archive(path, repo, REF, RELEASE, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (path.stat().st_size, path.stat().st_size)


NAME = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
PATHS = st.lists(NAME, min_size=1, max_size=4).map("/".join).filter(lambda path: not paths.fault(path.encode()))
TREES = st.dictionaries(PATHS, st.tuples(st.binary(max_size=300), st.booleans()), min_size=1, max_size=12)
FORMATS = st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])


def without_conflicts(files: dict[str, tuple[bytes, bool]]) -> dict[str, tuple[bytes, bool]]:
    return {path: file for path, file in files.items() if not any(other.startswith(f"{path}/") for other in files)}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=TREES.map(without_conflicts), form=FORMATS)
@pytest.mark.slow
def test_any_tree_goes_through_unchanged(tmp_path: Path, files: dict[str, tuple[bytes, bool]], form: int) -> None:
    repo = tmp_path / "repo.git"
    if not repo.exists():
        bare(repo)
    path = sdist(
        path_of(tmp_path),
        {name: content for name, (content, _) in files.items()},
        programs=tuple(name for name, (_, program) in files.items() if program),
        form=form,
    )
    found = import_archive(path, repo, REF, RELEASE)
    assert listing(repo, found.commit) == {
        name.encode(): (b"100755" if program else b"100644", blob(content)) for name, (content, program) in files.items()
    }
    assert found.tree == tree_id(path) == git.text(["rev-parse", f"{found.commit}^{{tree}}"], cwd=repo)


def test_the_standard_librarys_links_are_read_as_it_means_them(tmp_path: Path, repo: Path) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w:gz") as tar:
        for name, kind, target in (("a" * 120, tarfile.SYMTYPE, "b" * 150), ("h", tarfile.LNKTYPE, f"{TOP}/{'a' * 120}")):
            info = tarfile.TarInfo(f"{TOP}/{name}")
            info.type, info.linkname = kind, target
            tar.addfile(info)
    path_of(tmp_path).write_bytes(plain.getvalue())
    import_archive(path_of(tmp_path), repo, REF, RELEASE)
    assert set(listing(repo, REF).values()) == {(b"120000", blob(b"b" * 150))}
