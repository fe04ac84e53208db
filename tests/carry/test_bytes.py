# SPDX-License-Identifier: Apache-2.0
"""Patches whose bytes are not plain UTF-8 lines, and files with several patches: what comes out is what git makes of them."""

import base64
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import triage
from stack.carry.outcome import Outcome
from stack.carry.triage import Range
from stack.store import git

WINDOWS = b"".join(b"line %d\r\n" % number for number in range(1, 21))
LATIN = b"".join(b"l %d\n" % number for number in range(1, 21)) + b"Gr\xfc\xdfe = 1\nend\n"
BINARY = bytes(200)


class Ground:
    """A repository with the tags `base` and `onto`, and patches made of commits on the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repo"
        self.cache = folder / "cache"
        self.out = folder / "out"
        git.run(["init", "--quiet", "--initial-branch=main", str(self.folder)])
        for key, value in (("user.name", "Up"), ("user.email", "up@localhost")):
            git.run(["config", key, value], cwd=self.folder)
        self.commit("base", {"win.ini": WINDOWS, "doc.txt": LATIN, "a.bin": BINARY})
        git.run(["tag", "base"], cwd=self.folder)
        self.commit("onto", {"win.ini": b"top\r\n" + WINDOWS, "doc.txt": b"top\n" + LATIN})
        git.run(["tag", "onto"], cwd=self.folder)
        git.run(["checkout", "--quiet", "--detach", "base"], cwd=self.folder)

    def commit(self, message: str, files: dict[str, bytes], author: str = "Up <up@localhost>") -> None:
        for name, data in files.items():
            (self.folder / name).write_bytes(data)
        git.run(["add", "--all"], cwd=self.folder)
        git.run(["commit", "--quiet", f"--author={author}", "-m", message], cwd=self.folder)

    def mails(self) -> bytes:
        """The commits on the base as one file."""
        command = ["format-patch", "--quiet", "--full-index", "--binary", "--stdout", "base..HEAD"]
        return git.run(command, cwd=self.folder).stdout

    def rows(self, *files: bytes) -> list[triage.Row]:
        """The outcomes of patch files, which are written out, too."""
        paths = []
        for number, data in enumerate(files):
            paths.append(self.folder.parent / f"{number}.patch")
            paths[-1].write_bytes(data)
        found = triage.triage(self.folder, Range("base", "onto"), paths, cache=self.cache)
        triage.write(self.out, found)
        return list(found.rows)

    def am(self, *files: Path, crlf: str = "--keep-cr") -> str:
        """The tree and the authors that `git am` gives on the new base."""
        git.run(["checkout", "--quiet", "--detach", "onto"], cwd=self.folder)
        git.run(["am", "--quiet", "-3", crlf, *map(str, files)], cwd=self.folder)
        return git.text(["log", "--reverse", "--format=%T %an %s", "onto..HEAD"], cwd=self.folder)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def as_it_is(mail: bytes) -> bytes:
    return mail


def headed(mail: bytes, encoding: str, encode: Callable[[bytes], bytes]) -> bytes:
    head, _, text = mail.partition(b"\n\n")
    return head + f"\nContent-Transfer-Encoding: {encoding}\n\n".encode() + encode(text)


def quoted(text: bytes) -> bytes:
    """Every byte but letters, digits and line ends by its number: Python's own encoder gives all lines the end of the first."""
    return re.sub(rb"[^A-Za-z0-9\n]", lambda byte: b"=%02X" % byte[0][0], text)


WRAPPED = {
    "plain": as_it_is,
    "8bit": lambda mail: headed(mail, "8bit", as_it_is),
    "base64": lambda mail: headed(mail, "base64", base64.encodebytes),
    "quoted-printable": lambda mail: headed(mail, "quoted-printable", quoted),
}
CHANGED = {
    "CRLF": {"win.ini": WINDOWS.replace(b"line 9\r\n", b"line nine\r\n")},
    "CRLF that goes": {"win.ini": WINDOWS.replace(b"line 9\r\n", b"line 9\n")},
    "CRLF in a new file": {"new.bat": b"@echo\r\n"},
    "Latin-1 in the context": {"doc.txt": LATIN.replace(b"l 20\n", b"l twenty\n")},
    "Latin-1 added and removed": {"doc.txt": LATIN.replace(b"Gr\xfc\xdfe", b"Fr\xfchling")},
    "both": {"win.ini": WINDOWS.replace(b"line 9\r\n", b"line 9\n"), "doc.txt": LATIN + b"\xff\xfe"},
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("files", CHANGED.values(), ids=CHANGED)
def test_bytes_are_carried_as_they_are(ground: Ground, files: dict[str, bytes], wrap: Callable[[bytes], bytes]) -> None:
    ground.commit("Change it", files)
    given = wrap(ground.mails())
    [row] = ground.rows(given)
    assert row.carried.outcome in (Outcome.CLEAN, Outcome.MOVED)
    [out] = ground.out.iterdir()
    wanted = ground.am(ground.folder.parent / "0.patch")
    assert ground.am(out) == wanted == f"{row.carried.tree} Up Change it"
    assert out.read_bytes().partition(b"\n\n")[0] == given.partition(b"\n\n")[0]


def test_a_mail_with_crlf_throughout(ground: Ground) -> None:
    """Its own line ends are the transport's: those that a patch of a CRLF file has come on top."""
    ground.commit("Change it", CHANGED["both"])
    [row] = ground.rows(ground.mails().replace(b"\n", b"\r\n"))
    [out] = ground.out.iterdir()
    assert out.read_bytes().count(b"\r\n") == out.read_bytes().count(b"\n")
    assert ground.am(out, crlf="--no-keep-cr") == f"{row.carried.tree} Up Change it"


def test_several_mails_in_a_file(ground: Ground) -> None:
    """Text after binary after text, each with its own author; a file with one patch stands among them."""
    ground.commit("One, text", {"doc.txt": LATIN + b"one\n"}, "Ann <ann@x>")
    ground.commit("Two, binary", {"a.bin": bytes(300), "b.bin": bytes(range(256))}, "Bob <bob@x>")
    ground.commit("Three, text", {"win.ini": WINDOWS + b"three\r\n"}, "Cid <cid@x>")
    box = ground.mails()
    git.run(["tag", "--force", "base-tip"], cwd=ground.folder)
    ground.commit("Four, text", {"doc.txt": LATIN + b"one\nfour\n"}, "Dan <dan@x>")
    last = git.run(["format-patch", "--stdout", "--full-index", "-1"], cwd=ground.folder).stdout
    rows = ground.rows(box, last)
    assert [(row.file.name, row.mail) for row in rows] == [("0.patch", 1), ("0.patch", 2), ("0.patch", 3), ("1.patch", None)]
    assert [row.carried.patch.author.name for row in rows] == ["Ann", "Bob", "Cid", "Dan"]
    names = ["0001-one-text.patch", "0002-two-binary.patch", "0003-three-text.patch", "0004-1.patch"]
    outs = sorted(ground.out.iterdir())
    assert [out.name for out in outs] == names
    told = ground.am(*outs)
    assert told == "\n".join(f"{row.carried.tree} {row.carried.patch.author.name} {row.carried.patch.subject}" for row in rows)
    assert told == ground.am(*(ground.folder.parent / f"{number}.patch" for number in range(2)))


def test_a_mail_without_a_diff_is_named(ground: Ground) -> None:
    ground.commit("One", {"doc.txt": LATIN + b"one\n"})
    command = ["format-patch", "--cover-letter", "--stdout", "base..HEAD"]
    box = git.run(command, cwd=ground.folder).stdout
    with pytest.raises(StackError, match=r"mail 1 of .*0.patch holds no diff"):
        ground.rows(box)


def test_a_patch_whose_place_is_not_sure_is_a_conflict_and_the_rest_goes_on(ground: Ground) -> None:
    """A change beside lines that stand twice, made on a base that is not at hand."""
    twice = b"begin\none\ntwo\nthree\nfour\nfive\nsix\nend\n" * 2
    ground.commit("Twice", {"twice.txt": twice})
    git.run(["tag", "--force", "base"], cwd=ground.folder)
    ground.commit("Change one of them", {"twice.txt": twice.replace(b"four\n", b"4\n", 1)})
    ground.commit("Change another file", {"doc.txt": LATIN + b"more\n"})
    mails = ground.mails()
    unknown = re.sub(rb"(?m)^(index )[0-9a-f]{40}(\.\.[0-9a-f]{40} 100644\n--- a/twice)", rb"\g<1>" + b"7" * 40 + rb"\2", mails)
    assert unknown != mails
    first, second = ground.rows(unknown)
    assert (first.carried.outcome, first.exported) == (Outcome.CONFLICT, None)
    assert [(one.path, one.lines) for one in first.carried.conflicts] == [("twice.txt", (2, 2))]
    assert second.carried.outcome in (Outcome.CLEAN, Outcome.MOVED)
