# SPDX-License-Identifier: Apache-2.0
"""Mails as bytes, held against `git mailsplit` and `git mailinfo`."""

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stack.model import mail, patch
from stack.model.mail import Wrapping
from stack.model.series import PatchRef

from . import factories
from .factories import git

REF = PatchRef("gating", "vllm", "vllm/gate-kernels.patch")
ENCODINGS = ["7bit", "8bit", "binary", "base64", "quoted-printable"]
ODD = b"+Gr\xfc\xdfe = \t \r\n+\xff=\r\n+" + b"long " * 40 + b"\n+.\n+From here \n"
GOOD = factories.patch()
COUNTED = GOOD.replace(b"@@ -1 +1 @@\n-old\n+new\n", b"@@ -1 +1,5 @@\n-old\n" + ODD)


def encoded(encoding: str, *, crlf: bool = False, quoted_crlf: bool = False, charset: str = "UTF-8") -> bytes:
    """A patch with odd bytes, as a mail that is encoded so."""
    head, _, text = COUNTED.partition(b"\n\n")
    head += f"\nContent-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: {encoding}\n\n".encode()
    return Wrapping(head, encoding, crlf, quoted_crlf).wrap(text)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.one_of(st.binary(max_size=100), st.sampled_from([b"", b" ", b"a\r", b"=", b"=20", b".", b"\t"]))),
    st.sampled_from(ENCODINGS),
    st.booleans(),
    st.booleans(),
)
def test_what_is_wrapped_is_read_again(lines: list[bytes], encoding: str, crlf: bool, quoted_crlf: bool) -> None:
    text = b"\n".join([b"A message.", *lines])
    # Of a file with CRLF a carriage return before a line feed cannot be told from the line's own.
    assume(not (quoted_crlf and encoding in ("7bit", "8bit", "binary")))
    head = f"From: A <a@x>\nContent-Transfer-Encoding: {encoding}\n\n".encode()
    file = Wrapping(head, encoding, crlf, quoted_crlf).wrap(text)
    read = mail.read(file)
    assert read is not None
    assert read.text == text
    assert read.wrapping.wrap(read.text) == file
    if encoding in ("base64", "quoted-printable"):
        assert max(len(line.removesuffix(b"\r")) for line in file.split(b"\n")) <= 76


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_git_reads_the_same_of_an_encoded_mail(repository: Path, encoding: str) -> None:
    raw = encoded(encoding)
    git("mailinfo", "-b", str(repository / "message"), str(repository / "patch"), cwd=repository, data=raw)
    parsed = patch.parse(raw, REF, name="x.patch")
    assert (repository / "patch").read_bytes().endswith(parsed.diff)
    assert ODD in parsed.diff
    assert parsed.message.partition("\n\n")[2].encode() == (repository / "message").read_bytes()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("crlf", [False, True])
def test_another_diff_is_wrapped_as_the_first_was(encoding: str, crlf: bool) -> None:
    raw = encoded(encoding, crlf=crlf)
    first = patch.parse(raw, REF, name="x.patch")
    other = first.diff.replace(b"-old\n", b"-\xe4lter\n")
    file = first.with_diff(other)
    assert first.with_diff(first.diff) == raw
    assert first.diff_of(file) == other
    again = patch.parse(file, REF, name="x.patch")
    assert (again.message, again.author, again.diff) == (first.message, first.author, other)
    assert file.count(b"\r\n") == (file.count(b"\n") if crlf else raw.count(b"\r\n"))


def test_line_ends_within_an_encoding() -> None:
    """A mail program may write CRLF before it encodes; then the first line of the text ends so."""
    raw = encoded("base64", quoted_crlf=True)
    parsed = patch.parse(raw, REF, name="x.patch")
    assert parsed.diff == patch.parse(encoded("8bit"), REF, name="x.patch").diff
    assert parsed.with_diff(parsed.diff) == raw


@pytest.mark.parametrize(
    ("charset", "message", "read"),
    [
        ("ISO-8859-1", b"Gr\xfc\xdfe.", "Grüße."),
        ("ISO-8859-2", b"\xb1.", "ą."),
        ("UTF-8", "Grüße.".encode(), "Grüße."),
        ("UTF-8", b"Gr\xfc\xdfe.", "Grüße."),
        ("nonsense", "Grüße.".encode(), "Grüße."),
    ],
)
def test_the_charset_is_that_of_the_message_alone(charset: str, message: bytes, read: str) -> None:
    raw = encoded("8bit", charset=charset).replace(b"Because.", message)
    parsed = patch.parse(raw, REF, name="x.patch")
    assert parsed.message == f"Gate kernels\n\n{read}\n\nSigned-off-by: Ada <ada@example.org>\n"
    assert ODD in parsed.diff


def attached(repository: Path, option: str) -> tuple[bytes, bytes]:
    """A commit as `git format-patch` attaches it, and as it writes it plainly."""
    tree = git("mktree", cwd=repository, data=b"").decode().strip()
    blob = git("hash-object", "-w", "--stdin", cwd=repository, data=b"Gr\xfc\xdfe\r\n").decode().strip()
    changed = git("mktree", cwd=repository, data=f"100644 blob {blob}\tone\n".encode()).decode().strip()
    ada = {f"GIT_{role}_{field}": f"ada@{role}" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    base = git("commit-tree", tree, "-m", "base", cwd=repository, env=ada).decode().strip()
    commit = git("commit-tree", changed, "-p", base, "-m", "Add ö\n\nWhy: ä.", cwd=repository, env=ada).decode().strip()
    command = ["format-patch", "--full-index", "--stdout", "-1"]
    return git(*command, option, commit, cwd=repository), git(*command, "--no-attach", commit, cwd=repository)


@pytest.mark.parametrize("option", ["--attach", "--inline"])
def test_an_attached_patch(repository: Path, option: str) -> None:
    """It is written back as plain text: git reads the same of it."""
    parsed, plain = (patch.parse(raw, REF, name="x.patch") for raw in attached(repository, option))
    assert (parsed.message, parsed.author) == (plain.message, plain.author)
    assert plain.diff.startswith(parsed.diff.rstrip(b"\n"))
    file = parsed.with_diff(plain.diff)
    info = git("mailinfo", "-b", str(repository / "message"), str(repository / "patch"), cwd=repository, data=file)
    assert "Subject: Add ö" in info.decode().splitlines()
    assert (repository / "message").read_text() == "Why: ä.\n"
    assert (repository / "patch").read_bytes().endswith(plain.diff)


def test_a_mailbox_is_split_as_git_splits_it(repository: Path) -> None:
    quoting = factories.patch("Quote", head="").replace(b"Because.", b"From here on, at 10:00:00 in 2026: it\nFrom nothing")
    box = b"\n".join([GOOD, factories.patch("Two"), quoting])
    folder = repository / "split"
    folder.mkdir()
    git("mailsplit", f"-o{folder}", cwd=repository, data=box)
    assert [part.rstrip(b"\n") for part in mail.split(box)] == [
        file.read_bytes().rstrip(b"\n") for file in sorted(folder.iterdir())
    ]
    assert [one.subject for one in patch.parse_all(box, REF, name="x")] == ["Gate kernels", "Two", "Quote"]
    assert len({one.ref.path for one in patch.parse_all(box, REF, name="x")}) == 3


def test_a_mail_without_its_from_line() -> None:
    raw = GOOD.partition(b"\n")[2]
    assert mail.is_mail(raw)
    assert mail.is_mail(b"Received: from x\n by y\nX-Z: From: q\n" + raw)
    assert patch.parse(raw, REF, name="x.patch").author == patch.parse(GOOD, REF, name="x.patch").author
    for other in (b"Index: x\n--- x\n", b"diff --git a/x b/x\n", b"What From: a\n", b""):
        assert not mail.is_mail(other)
