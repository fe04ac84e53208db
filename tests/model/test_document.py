# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.model import document
from stack.model.document import Table, find_cycle

from .factories import refusal

Reader = Callable[[Table], object]


def finish_within(table: Table) -> None:
    table.table("a").finish()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "x.toml is missing: check --root"),
        (b"a = 1\n\xff", "x.toml is not UTF-8 (byte 6): save it as UTF-8"),
        (b"a = 1\nb = \n", "x.toml: Invalid value (at line 2, column 5): mend the TOML there"),
        (b"a = 1\na = 2\n", "x.toml: Cannot overwrite a value (at line 2, column 6): mend the TOML there"),
        (b"a = " + b"[" * 20_000, "x.toml: it is nested too deeply: mend the TOML there"),
        (b"a = " + b"{a = " * 20_000, "x.toml: it is nested too deeply: mend the TOML there"),
        (b"a = " + b"9" * 5000, "x.toml: a number has too many digits: mend the TOML there"),
        (b"[a]\nb = [1, { c = 0x" + b"f" * 5000 + b" }]", "x.toml: a number has too many digits: mend the TOML there"),
        (b"\xef\xbb\xbfa = 1\n", "x.toml:1 begins with a byte order mark: save it as UTF-8 without one"),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else "",
)
def test_unreadable(tmp_path: Path, content: bytes | None, line: str) -> None:
    if content is not None:
        (tmp_path / "x.toml").write_bytes(content)
    assert refusal(tmp_path, document.load, tmp_path / "x.toml") == line


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.toml").mkdir()
    assert refusal(tmp_path, document.load, tmp_path / "x.toml") == (
        "x.toml cannot be read (Is a directory): check the file's rights"
    )


@pytest.mark.parametrize(
    ("text", "read", "line"),
    [
        ("", lambda t: t.text("a"), "x.toml: a is missing: add it"),
        ("", lambda t: t.table("a"), "x.toml: a is missing: add it"),
        ("a = 1", lambda t: t.text("a", meaning="a tag"), "x.toml: a is 1: it has to be a tag"),
        ("a = ' '", lambda t: t.text("a"), "x.toml: a is ' ': it has to be text"),
        ("a = 'x\\ny'", lambda t: t.text("a", pattern="x", meaning="x"), r"x.toml: a is 'x\\ny': it has to be x"),
        ('a = "x\\n"', lambda t: t.text("a", pattern="x", meaning="x"), r"x.toml: a is 'x\n': it has to be x"),
        ("a = true", lambda t: t.optional_text("a"), "x.toml: a is True: it has to be text"),
        ("a = 'x'", lambda t: t.texts("a"), "x.toml: a is 'x': it has to be a list of strings"),
        ("a = ['x', 1]", lambda t: t.texts("a"), "x.toml: a is ['x', 1]: it has to be a list of strings"),
        ("a = ['']", lambda t: t.texts("a"), "x.toml: a is ['']: it has to be a list of strings"),
        ("a = ['x', 'y', 'x']", lambda t: t.texts("a"), "x.toml: a names 'x' twice: name it once"),
        ("a = 1", lambda t: t.table("a"), "x.toml: a is 1: it has to be a table"),
        ("a = []", lambda t: t.optional_table("a"), "x.toml: a is []: it has to be a table"),
        ("[a]", lambda t: t.tables("a"), "x.toml: a is {}: it has to be an array of tables"),
        ("a = [{}, 1]", lambda t: t.tables("a"), "x.toml: a[1] is 1: it has to be a table"),
        ("[[a]]\nb = 1", lambda t: t.tables("a")[0].text("b"), "x.toml: a[0].b is 1: it has to be text"),
        ("[a]\nb.c = 1", lambda t: t.table("a").table("b").text("c"), "x.toml: a.b.c is 1: it has to be text"),
        ("[a]\nfoo = 1", finish_within, "x.toml: a.foo is an unknown key: known here:"),
    ],
)
def test_refused(tmp_path: Path, text: str, read: Reader, line: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    assert refusal(tmp_path, read, document.load(tmp_path / "x.toml")) == line


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("pul", "x.toml: pul is an unknown key: did you mean 'pull'?"),
        ("zzz", "x.toml: zzz is an unknown key: known here: pull, reason"),
    ],
)
def test_unknown_key(tmp_path: Path, key: str, line: str) -> None:
    (tmp_path / "x.toml").write_text(f"{key} = 1")
    table = document.load(tmp_path / "x.toml")
    assert (table.optional_text("pull"), table.optional_text("reason")) == (None, None)
    assert refusal(tmp_path, table.finish) == line


def test_reads(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes("a = 'ä'\r\nb = ['x']\r\n[c]\r\n[[d]]\r\ne = 'f'\r\n".encode())
    table = document.load(tmp_path / "x.toml")
    assert (table.text("a"), table.texts("b"), table.optional_text("none"), table.texts("none")) == ("ä", ("x",), None, ())
    assert list(table) == ["a", "b", "c", "d"]
    assert list(table.table("c")) == []
    assert [one.text("e") for one in table.tables("d")] == ["f"]
    assert (table.optional_table("none"), table.tables("none")) == (None, ())
    table.finish()


def test_error_is_one_line() -> None:
    assert str(StackError("a\n b", "c\td")) == "a b: c d"
    assert str(StackError("a")) == "a"


NODES = st.sampled_from("abcde")


@given(st.dictionaries(NODES, st.lists(NODES, max_size=3)))
def test_find_cycle(edges: dict[str, list[str]]) -> None:
    cycle = find_cycle(edges)
    reached = {node: {node} for node in "abcde"}
    for _ in range(5):
        for found in reached.values():
            found.update(*(edges.get(one, []) for one in list(found)))
    cyclic = any(start in reached[after] for start, ends in edges.items() for after in ends)
    assert bool(cycle) == cyclic
    if cycle:
        assert cycle[0] == cycle[-1]
        assert all(after in edges[before] for before, after in pairwise(cycle))


@pytest.mark.parametrize(
    "key", [".".join(["a"] * 100_000), ".".join(['"a b"'] * 40), " . ".join(["a"] * 40), ".".join(["é"] * 40)]
)
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "[[{}]]", "a = {{ {} = 1 }}", "why = 'a.b'\n{} = 1"])
def test_a_key_of_very_many_parts_is_refused_at_once(tmp_path: Path, key: str, form: str) -> None:
    """The parser takes a minute and all memory for a key of 200 kB."""
    file = tmp_path / "x.toml"
    file.write_text(form.format(key))
    with pytest.raises(StackError, match=r"has more than 32 parts|Invalid|Expected"):
        document.load(file)


def test_texts_with_many_dots_are_no_keys(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f'a.b.c.d = "{"One sentence. " * 100}"\ndots = "{"." * 1000}"\n')
    assert document.load(file).text("dots") == "." * 1000


def test_a_named_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StackError, match="is not a regular file"):
        document.read_bytes(tmp_path / "pipe")


def test_a_pipe_that_the_user_names_is_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"data")
    os.close(writer)
    assert document.read_bytes(Path(f"/dev/fd/{reader}"), piped=True) == b"data"
    os.close(reader)
