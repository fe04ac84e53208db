# SPDX-License-Identifier: Apache-2.0
import re
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stack.model import patch
from stack.model.patch import Author, Patch
from stack.model.series import PatchRef

from . import factories
from .factories import git, refusal

REF = PatchRef("gating", "vllm", "vllm/gate-kernels.patch")
GOOD = factories.patch()


def parse(raw: bytes) -> Patch:
    return patch.parse(raw, REF, name="x.patch")


def test_parses() -> None:
    parsed = parse(GOOD)
    assert parsed == Patch(
        ref=REF,
        raw=GOOD,
        author=Author("Ada", "ada@example.org", "1767603600 +0100"),
        subject="Gate kernels",
        message="Gate kernels\n\nBecause.\n\nSigned-off-by: Ada <ada@example.org>\n",
        diff=GOOD[GOOD.index(b"diff --git") :],
    )


def without(*pieces: bytes) -> bytes:
    raw = GOOD
    for piece in pieces:
        assert piece in raw
        raw = raw.replace(piece, b"", 1)
    return raw


NO_PATCH = "x.patch is not a patch that `git format-patch` wrote: export it with git, or use `stack refresh`"
ENCODED = "the transfer encoding that its header states"
EXPORT = "export it with `git format-patch`"


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"", NO_PATCH),
        (b"diff --git a/x b/x\n", NO_PATCH),
        (GOOD[GOOD.index(b"diff") :], NO_PATCH),
        (b"\xef\xbb\xbf" + GOOD, NO_PATCH),
        (GOOD.partition(b"\n\n")[0], NO_PATCH),
        (GOOD.partition(b"diff")[0], "x.patch holds no diff: a patch has to change something"),
        (without(b"Gate kernels"), "x.patch has no subject: give the commit a message"),
        (without(b"Subject: [PATCH] Gate kernels\n"), "x.patch has no subject: give the commit a message"),
        (without(b"From: Ada <ada@example.org>\n"), f"x.patch names no author: {EXPORT}"),
        (without(b"Mon, 5 Jan 2026 10:00:00 +0100"), f"x.patch has no readable date (''): {EXPORT}"),
        (without(b" Jan"), f"x.patch has no readable date ('Mon, 5 2026 10:00:00 +0100'): {EXPORT}"),
        *(
            (
                factories.patch(head=f"Content-Transfer-Encoding: {how}\n").replace(b"Because.", b"Why"),
                f"x.patch is not in {ENCODED}: {EXPORT}",
            )
            for how in ("x-secret", "base64")
        ),
    ],
)
def test_refused(tmp_path: Path, raw: bytes, line: str) -> None:
    assert refusal(tmp_path, parse, raw) == line
    (tmp_path / "x.patch").write_bytes(raw)
    assert refusal(tmp_path, patch.read, tmp_path / "x.patch", REF) == line


def test_several_patches_in_one_file_of_the_stack(tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_bytes(GOOD + b"\n" + factories.patch("Two"))
    line = refusal(tmp_path, patch.read, tmp_path / "x.patch", REF)
    assert line == "x.patch holds 2 patches: make a file of each (`git mailsplit`), and list them in series.toml"


def test_unreadable(tmp_path: Path) -> None:
    line = refusal(tmp_path, patch.read, tmp_path / "x.patch", REF)
    assert line == "x.patch is missing: restore it, or take it out of series.toml"
    (tmp_path / "x.patch").mkdir()
    line = refusal(tmp_path, patch.read, tmp_path / "x.patch", REF)
    assert line == "x.patch cannot be read (Is a directory): check the file's rights"


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        ("[PATCH] a", "a"),
        ("[PATCH 01/12] [Bugfix] a", "[Bugfix] a"),
        ("[RFC PATCH v2] a", "a"),
        ("[Tag] a", "[Tag] a"),
        ("[PATCH] a\n b\n\tc", "a b c"),
        ("[PATCH] =?UTF-8?q?M=C3=BCll_?=\n =?UTF-8?q?=E2=82=AC?=", "Müll €"),
        ("[PATCH] =?utf-8?B?w6Q=?= b", "ä b"),
        ("[PATCH] =?nonsense?q?x?= =?utf-8?b?w?=", "=?nonsense?q?x?==?utf-8?b?w?="),
        ("[PATCH] a\u00a0b ü", "a\u00a0b ü"),
        ("[PATCH] [DISPATCH] a", "[DISPATCH] a"),
        ("[DISPATCH] a", "[DISPATCH] a"),
        ("[PATCH] [PATCH 1/2] a", "[PATCH 1/2] a"),
        ("[PATCHv2 net-next] [x] a", "[x] a"),
        ("[PATCHES] a", "[PATCHES] a"),
        ("[RFC/PATCH] a", "[RFC/PATCH] a"),
    ],
)
def test_subject(header: str, subject: str) -> None:
    assert parse(GOOD.replace(b"[PATCH] Gate kernels", header.encode())).subject == subject


@pytest.mark.parametrize(
    ("date", "raw"),
    [
        ("Mon, 5 Jan 2026 10:00:00 -0000", "1767607200 +0000"),
        ("Mon, 5 Jan 2026 10:00:00 +0000", "1767607200 +0000"),
        ("Mon, 5 Jan 2026 10:00:00 +0530", "1767587400 +0530"),
        ("Wed, 31 Dec 1969 23:59:00 -0330", "12540 -0330"),
        ("5 Jan 26 10:00 +0100", "1767603600 +0100"),
        ("Mon, 05 Jan 0026 10:00:00 +0100", "1767603600 +0100"),
        ("Mon, 5 Jan 2026 10:00:00 GMT (winter)", "1767607200 +0000"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "XXX-9"])
def test_date(monkeypatch: pytest.MonkeyPatch, date: str, raw: str, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert parse(GOOD.replace(b"Mon, 5 Jan 2026 10:00:00 +0100", date.encode())).author.date == raw
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s", ()),
        ("s\n\nbody: it\n\nno trailer", ()),
        ("Key: not in the subject", ()),
        ("s\n\nA-b: c\nD: e: f \n", (("A-b", "c"), ("D", "e: f"))),
        ("s\n\nA: b\nplain", ()),
        ("s\n\nA: b\u2028plain\n", (("A", "b\u2028plain"),)),
    ],
)
def test_trailers(text: str, found: tuple[tuple[str, str], ...]) -> None:
    assert patch.trailers(text) == found


# --- against git ----------------------------------------------------------------------------------------------------------

# What mailinfo and a commit can hold: no control characters, and nothing that git's clean-up of a message would take away.
WORDS = (
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12).map(str.strip).filter(bool)
)
LINES = st.one_of(
    WORDS,
    st.lists(WORDS, min_size=3, max_size=12).map(" ".join),
    st.sampled_from([
        "---", "--- ", "--- a/x", "----", "--", "-- ", "diff --git a/x b/x", "diff -u a b", "Index: x", "index: x", "diff", "@@ -1 +1 @@",
        "From: Other <other@example.org>", "From the docs", "from: me@example.org", "Subject: other", ">From x", "[PATCH] x",
        "# hash", "  indented", "\tindented", "Signed-off-by: Ada <ada@example.org>", "=?UTF-8?q?M=C3=BC?=", "a=\u00a0b",
    ]),
).filter(lambda line: line.strip())  # fmt: skip
SUBJECTS = st.one_of(
    LINES,
    st.builds("{} {}".format, st.sampled_from(["[Tag]", "[a][b]", "[x PATCH]", "Re:", ":", "[", "]"]), WORDS),
    st.lists(WORDS, min_size=20, max_size=40).map(" ".join),
)
PARAGRAPHS = st.lists(LINES, min_size=1, max_size=3).map("\n".join)
NAMES = st.one_of(
    WORDS,
    st.sampled_from(
        ['Doe, John "JD"', "Jörg Müller, Dr.", 'J"ö"rg', "O'Neil", "a\\b", "x@y", "日本" * 20, "A. (B) C", "Ü (x)"]
    ),
).filter(lambda name: name.strip(" .,:;<>\"'\\"))
MAILS = st.from_regex(r"[a-z]{1,5}(\+[a-z])?@[a-z]{1,5}\.org", fullmatch=True)
DATES = st.builds("{} {}".format, st.integers(10**8, 2**32), st.sampled_from(["+0000", "-0330", "+1345", "-1100"]))


def stripspace(text: str) -> str:
    """What `git stripspace` makes of a text, for these texts."""
    lines = [line.rstrip(" \t\n\r\v\f") for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


@pytest.fixture(scope="module")
def commits(repository: Path) -> tuple[str, str]:
    """A commit, and the tree of one that stands on it."""
    blob = git("hash-object", "-w", "--stdin", cwd=repository, data=b"one\n").decode().strip()
    trees = [
        git("mktree", cwd=repository, data=entry.encode()).decode().strip() for entry in ("", f"100644 blob {blob}\tone\n")
    ]
    env = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
    return git("commit-tree", trees[0], "-m", "base", cwd=repository, env=env).decode().strip(), trees[1]


@settings(deadline=None, max_examples=100)
@given(NAMES, MAILS, DATES, SUBJECTS, st.lists(PARAGRAPHS, max_size=3))
@example("Ada", "a@b.org", "1000000000 +0000", "Re: it", [])
@example("Ada", "a@b.org", "1000000000 +0000", "s", ["From: Other <o@b.org>\nand\n---\nmore"])
@pytest.mark.slow
def test_means_what_it_means_to_git(
    repository: Path, commits: tuple[str, str], name: str, mail: str, date: str, subject: str, paragraphs: list[str]
) -> None:
    message = stripspace("\n\n".join([subject.strip(), *paragraphs]))
    # There git takes a line for something else; nobody's message begins so.
    assume(not re.match(r"(?i)\n*((from|subject):.*\n)*(>From|\[PATCH\]|(?<=.\n)[ \t])", message.partition("\n")[2]))
    env = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": mail, "GIT_AUTHOR_DATE": f"@{date}"}
    base, changed = commits
    commit = git("commit-tree", changed, "-p", base, cwd=repository, data=f"{message}\n".encode(), env=env).decode().strip()
    said = git("log", "-1", "--format=%an%x00%ae%x00%ad%x00%s", "--date=raw", commit, cwd=repository).decode().rstrip("\n")
    options = ["--full-index", "--no-stat", "--no-signature", "--zero-commit", "-N", "--stdout", "-1"]
    raw = git("format-patch", *options, commit, cwd=repository)
    info = git("mailinfo", "-b", str(repository / "message"), str(repository / "patch"), cwd=repository, data=raw).decode(
        "utf-8", "replace"
    )
    header = dict(line.split(": ", 1) for line in info.split("\n") if ": " in line)

    parsed = parse(raw)
    wrote_name, wrote_mail, wrote_date, wrote_subject = said.split("\0")
    assert parsed.raw == raw
    assert parsed.subject in (header.get("Subject"), collapsed(wrote_subject))
    body = stripspace((repository / "message").read_bytes().decode())
    assert parsed.message == (f"{parsed.subject}\n\n{body}\n" if body else f"{parsed.subject}\n")
    assert (parsed.author.name, parsed.author.mail) in ((header["Author"], header["Email"]), (wrote_name, wrote_mail))
    assert parsed.author.date == wrote_date
    # Mailinfo keeps the `---` itself, and whatever the message had below it.
    assert (repository / "patch").read_bytes().endswith(parsed.diff)
    assert parsed.diff.startswith(b"diff --git a/")


def collapsed(subject: str) -> str:
    return re.sub("[ \t]+", " ", subject).strip(" ")
