# SPDX-License-Identifier: Apache-2.0
"""What a person resolved once is found again, at the same place only, and gives the very bytes."""

import os
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.carry.resolutions import (
    Beside,
    NotRecorded,
    Resolution,
    Resolutions,
    applied,
    changes,
    drop,
    dump,
    files,
    record,
    recording,
    shown,
    standing,
)
from stack.carry.resolutions.hunks import Hunk, merge
from stack.model import switch
from stack.store import git

BASE = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"
OURS = BASE.replace(b"five", b"5")
THEIRS = BASE.replace(b"five", b"FIVE")
PERSON = BASE.replace(b"five", b"5, FIVE")
PATCH = "one/gamma/hook-main.patch"


def recorded(base: bytes = BASE, ours: bytes = OURS, theirs: bytes = THEIRS, person: bytes = PERSON) -> tuple[Resolution, ...]:
    return record("a.py", base, ours, theirs, person, upstream="gamma", patch=PATCH, rung="v2.1")


def refused(base: bytes = BASE, ours: bytes = OURS, theirs: bytes = THEIRS, person: bytes = PERSON) -> str:
    with pytest.raises(NotRecorded) as caught:
        recorded(base, ours, theirs, person)
    return caught.value.reason


def write(folder: Path, contents: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder


def kept(folder: Path, *new: Resolution) -> Resolutions:
    """As the next person has them: from the files."""
    return Resolutions.load(write(folder, files(Resolutions.load(folder), new)))


def test_the_same_conflict_is_resolved_again(tmp_path: Path) -> None:
    [one] = recorded()
    assert one == Resolution(
        key=one.key,
        path="a.py",
        upstream="gamma",
        patch=PATCH,
        rung="v2.1",
        before="two\nthree\nfour\n",
        base="five\n",
        ours="5\n",
        theirs="FIVE\n",
        after="six\nseven\neight\n",
        resolved="5, FIVE\n",
    )
    known = kept(tmp_path, one)
    assert (list(known), known.get(one.key), known.get("0" * 16)) == ([one], (one,), ())
    # In another file, with other lines further away.
    three = [data.replace(b"one\n", b"").replace(b"nine\n", b"nine\nten\n") for data in (BASE, OURS, THEIRS, PERSON)]
    applied = known.apply("moved.py", *three[:3])
    assert applied is not None
    assert (applied.data, applied.used, applied.offered) == (three[3], (one,), ())


def test_other_surroundings_are_offered(tmp_path: Path) -> None:
    known = kept(tmp_path, *recorded())
    for near in (b"three\n", b"eight\n"):
        three = [data.replace(near, b"other\n") for data in (BASE, OURS, THEIRS)]
        applied = known.apply("a.py", *three)
        assert applied is not None
        assert (applied.data, applied.used, applied.offered) == (None, (), tuple(known))
    # Lines that the patch brings next to it are surroundings, too.
    applied = known.apply("a.py", BASE, OURS, THEIRS.replace(b"eight", b"EIGHT"))
    assert applied is not None
    assert applied.data is None


@pytest.mark.parametrize("side", range(3))
def test_another_change_is_another_conflict(tmp_path: Path, side: int) -> None:
    known = kept(tmp_path, *recorded())
    three = [BASE, OURS, THEIRS]
    three[side] = BASE.replace(b"five", b"fifth")
    assert known.apply("a.py", three[0], three[1], three[2]) is None


def test_a_hash_that_collides_resolves_nothing() -> None:
    [one] = recorded()
    known = Resolutions({one.key: replace(one, ours="55\n")})
    applied = known.apply("a.py", BASE, OURS, THEIRS)
    assert applied is not None
    assert (applied.data, applied.used) == (None, ())


def test_a_hunk_is_all_that_both_sides_changed() -> None:
    """Also what they changed in the same way: the base's lines belong to all of it."""
    [one] = recorded(BASE, BASE.replace(b"five", b"v\n5"), BASE.replace(b"five", b"v\nV"), PERSON)
    assert (one.base, one.ours, one.theirs) == ("five\n", "v\n5\n", "v\nV\n")


def two(ours: str, theirs: str) -> bytes:
    """A file with two conflicts, seven lines apart."""
    return BASE.replace(b"two", ours.encode()).replace(b"nine", theirs.encode())


def test_every_hunk_has_to_be_known(tmp_path: Path) -> None:
    three = two("two", "nine"), two("2", "9"), two("TWO", "NINE")
    person = two("2, TWO", "NINE")
    first, second = recorded(*three, person)
    assert (first.resolved, second.resolved) == ("2, TWO\n", "NINE\n")
    known = kept(tmp_path / "one", first)
    applied = known.apply("a.py", *three)
    assert applied is not None
    assert (applied.data, applied.used, applied.offered) == (None, (first,), ())
    applied = kept(tmp_path / "both", first, second).apply("a.py", *three)
    assert applied is not None
    assert (applied.data, applied.used) == (person, (first, second))


def test_the_key_is_made_from_the_three_versions() -> None:
    def key(*versions: str) -> str:
        return Hunk("b\n", *versions, "a\n").key

    assert key("x\n", "y\n", "z\n") == Hunk("", "x\n", "y\n", "z\n", "").key
    assert len({key("x\n", "y\n", "z\n"), key("y\n", "x\n", "z\n"), key("x\ny\n", "", "z\n"), key("", "x\ny\n", "z\n")}) == 4
    # Written down: keys stand in file names that others have.
    assert key("x\n", "y\n", "z\n") == "34f92d9305e11ba8"


def test_surroundings_end_at_the_next_conflict() -> None:
    three = b"a\nb\nc\n", b"1\nb\n3\n", b"A\nb\nC\n"
    first, second = recorded(*three, b"1A\nb\n3C\n")
    assert (first.before, first.after, second.before, second.after) == ("", "b\n", "b\n", "")


def cut(person: str, between: str = "\n") -> list[str]:
    """What is recorded of a file with two conflicts around `between`."""
    three = [f"{first}{between}{second}" for first, second in (("b\n", "c\n"), ("b1\nx\n", "c1\n"), ("b2\n", "c2\ny\n"))]
    return [one.resolved for one in recorded(*(text.encode() for text in three), person.encode())]


def test_each_hunk_gets_its_lines() -> None:
    assert cut("new\n\nc1\nc2\n") == ["new\n", "c1\nc2\n"]
    assert cut("\n") == ["", ""]
    # The blank line between the hunks is the second one: so each hunk has the lines that are its own.
    assert cut("b1\n\nb2\n\nc2\n") == ["b1\n\nb2\n", "c2\n"]
    assert cut("b1\n\nc1\n\nc2\n") == ["b1\n", "c1\n\nc2\n"]
    assert cut("b1\n\nother\n\nx\n\nc2\n") == ["b1\n\nother\n\nx\n", "c2\n"]


def test_the_same_lines_between_three_hunks() -> None:
    three = b"b\n\nc\n\nd\n", b"b1\n\nc1\n\nd1\n", b"b2\n\nc2\n\nd2\n"
    for person in ("|\n||\n|", "b1\n|\n|c2\n|\n|", "|\n||\n|new\n", "b1\nb2\n|\n|c\n|\n|d2\nd1\n"):
        parts = [one.resolved for one in recorded(*three, person.replace("|", "").encode())]
        assert parts == person.split("|\n|")


@pytest.mark.parametrize("person", ["new\n\nmore\n\nlines\n", "b1\n\nnew\n\nc1\n", "\n\n", "b1\n\n\nc1\n"])
def test_it_cannot_be_told_which_lines_resolve_which_hunk(person: str) -> None:
    three = b"b\n\nc\n", b"b1\n\nc1\n", b"b2\n\nc2\n"
    assert refused(*three, person.encode()) == "it cannot be told which lines resolve which conflict"


@pytest.mark.parametrize(
    "change", [(b"two", b"second"), (b"nine\n", b""), (b"one\n", b""), (b"nine\n", b"nine\nten\n"), (b"nine\n", b"nine")]
)
def test_lines_elsewhere_were_changed(change: tuple[bytes, bytes]) -> None:
    assert refused(person=PERSON.replace(*change)) == "lines outside the conflicts were changed, too"


def test_lines_between_conflicts_were_changed() -> None:
    three = two("two", "nine"), two("2", "9"), two("TWO", "NINE")
    assert refused(*three, two("2", "9").replace(b"five", b"v")) == "lines outside the conflicts were changed, too"
    assert refused(b"a\nb\na\n", b"x\nb\nx\n", b"y\nb\ny\n", b"b") == "lines outside the conflicts were changed, too"
    # The same lines may not count as what is above and as what is below.
    same = b"a\na\nb\na\na\n"
    assert refused(same, same.replace(b"b", b"c"), same.replace(b"b", b"d"), b"a\na\na\n").startswith("lines outside")


def test_a_resolution_next_to_which_lines_were_added() -> None:
    [one] = recorded(person=PERSON.replace(b"5, FIVE", b"above\n5\nbelow"))
    assert one.resolved == "above\n5\nbelow\n"


def test_the_same_hunk_twice() -> None:
    three = [b"".join(b"a\nb\nc\n%s\nd\ne\nf\n" % word for _ in range(2)) for word in (b"x", b"y", b"z")]
    [one] = recorded(*three, three[0].replace(b"x", b"yz"))
    assert one.resolved == "yz\n"
    applied = Resolutions({one.key: one}).apply("a.py", *three)
    assert applied is not None
    assert applied.used == (one,)
    person = three[0].replace(b"x", b"yz", 1).replace(b"x", b"zy")
    assert refused(*three, person) == "the same conflict is resolved in different ways"


def test_a_wrong_cut_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else goes wrong: what does not give the person's file is not recorded."""
    monkeypatch.setattr(recording, "cut", lambda *_: [["other\n"]])
    assert refused() == "its hunks, resolved so, give another file"


def test_markers_are_no_resolution() -> None:
    left = BASE.replace(b"five", b"<<<<<<< HEAD\n5\n=======\nFIVE\n>>>>>>> patch")
    assert refused(person=left) == "conflict markers are left in it"
    # A file about conflicts has them.
    [one] = recorded(theirs=THEIRS.replace(b"FIVE", b"<<<<<<< HEAD"), person=PERSON.replace(b"5, FIVE", b"<<<<<<< HEAD"))
    assert one.resolved == "<<<<<<< HEAD\n"


def test_a_heading_underlined_with_many_signs() -> None:
    assert recorded(person=PERSON.replace(b"5, FIVE", b"5\n=======\n" + b"=" * 300))
    ruled = [data.replace(b"one\n", b"one\n" + b"=" * 300 + b"\n") for data in (BASE, OURS, THEIRS, PERSON)]
    assert refused(*ruled) == "it is binary, larger than 512 KiB, or has a ruler of 200 signs"


@pytest.mark.parametrize("side", range(4))
@pytest.mark.parametrize("spoil", [b"\0", "\U0010fee4\n".encode(), b"x" * (1 << 19)], ids=["NUL", "private", "large"])
def test_no_text(tmp_path: Path, side: int, spoil: bytes) -> None:
    four = [BASE, OURS, THEIRS, PERSON]
    four[side] = spoil + four[side]
    assert refused(*four) == "it is binary, larger than 512 KiB, or has a ruler of 200 signs"
    if side < 3:
        assert kept(tmp_path, *recorded()).apply("a.py", *four[:3]) is None


def test_no_conflict(tmp_path: Path) -> None:
    assert refused(theirs=BASE) == "its lines merge without a conflict"
    assert kept(tmp_path, *recorded()).apply("a.py", BASE, OURS, BASE) is None
    assert Resolutions({}).apply("a.py", BASE, OURS, THEIRS) is None


def test_a_path_that_no_stack_would_take() -> None:
    for path in ("../a.py", "a\\b", "a\nb", "", "\udcff"):
        with pytest.raises(NotRecorded):
            record(path, BASE, OURS, THEIRS, PERSON, upstream="gamma", patch=PATCH, rung="v2.1")


ODD: Mapping[str, Callable[[bytes], bytes]] = {
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "some CRLF": lambda data: data.replace(b"e\n", b"e\r\n"),
    "no end of line": lambda data: data.removesuffix(b"\nsix\nseven\neight\nnine\n"),
    "nothing around": lambda data: data[data.index(b"four\n") + 5 : data.index(b"\nsix") + 1],
    "blanks": lambda data: data.replace(b"FIVE", b"").replace(b"5", b" \t"),
    "one line": lambda data: data[data.index(b"four\n") + 5 : data.index(b"\nsix")],
    "Latin-1": lambda data: data.replace(b"four", b"f\xf6ur\xff").replace(b"FIVE", b"F\xcfVE").replace(b"5", b"\xb5"),
    "UTF-8 cut in two": lambda data: data.replace(b"four", "f\u00f6ur".encode()[:2]).replace(b"FIVE", b"\xc3"),
    "form feed": lambda data: data.replace(b"four", b"\x0cfour\x85".decode("latin-1").encode()),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_files(tmp_path: Path, odd: str) -> None:
    base, ours, theirs, person = map(ODD[odd], (BASE, OURS, THEIRS, PERSON))
    applied = kept(tmp_path, *recorded(base, ours, theirs, person)).apply("a.py", base, ours, theirs)
    assert applied is not None
    assert applied.data == person


def test_bytes_that_are_not_utf_8_are_kept_and_seen() -> None:
    base, ours, theirs, person = map(ODD["Latin-1"], (BASE, OURS, THEIRS, PERSON))
    [one] = recorded(base, ours, theirs, person)
    assert "F\\U0010fecfVE" in dump(one)
    other = theirs.replace(b"F\xcfVE", b"F\xceVE")
    assert recorded(base, ours, other, person)[0].key != one.key


def test_only_some_versions_end_without_a_line_end() -> None:
    for base, ours, theirs in ((b"a\n", b"b", b"c\n"), (b"a", b"b\n", b"c"), (b"", b"b", b"c\nd")):
        [one] = recorded(base, ours, theirs, b"b\nc")
        assert (one.base, one.ours, one.theirs, one.resolved) == (base.decode(), ours.decode(), theirs.decode(), "b\nc")


def test_who_resolved_it_in_this_path_comes_first(tmp_path: Path) -> None:
    [one] = recorded()
    there = [replace(one, path=path, before=f"{path}\n") for path in ("z.py", "b.py", "m.py")]
    known = kept(tmp_path, *there)
    for path in ("z.py", "b.py", "m.py"):
        applied = known.apply(path, BASE, OURS, THEIRS)
        assert applied is not None
        assert applied.offered[0].path == path
        assert len(applied.offered) == 3


def test_files_that_come_in() -> None:
    [one] = recorded()
    new = files(Resolutions({}), [one])
    assert new == {f"{one.key}.toml": dump(one).encode()}
    known = Resolutions({one.key: one})
    assert files(known, [one]) == {}
    assert files(known, [replace(one, rung="v9", path="b.py")]) == {}
    assert files(known, [replace(one, resolved="6\n"), one]) == new
    # Resolved otherwise: the old one's place. In other surroundings: a place of its own, once.
    other = replace(one, resolved="6\n")
    assert files(known, [other]) == {f"{one.key}.toml": dump(other).encode()}
    elsewhere = [replace(one, before=f"{word}\n") for word in ("x", "y", "x")]
    assert list(files(known, elsewhere)) == [f"{one.key}-2.toml", f"{one.key}-3.toml"]
    assert list(files(Resolutions({f"{one.key}-2": one}), elsewhere)) == [f"{one.key}.toml", f"{one.key}-3.toml"]


def test_what_was_changed_beside_it_comes_in(tmp_path: Path) -> None:
    beside = (Beside("b.py", "x\n", "y \n", "", "z"), Beside("c.py", "", "", "new\n", "a\n"))
    one = replace(recorded()[0], beside=beside)
    known = kept(tmp_path, one)
    assert list(known) == [one]
    assert files(known, [one]) == {}
    assert files(known, [replace(one, beside=())]) == {f"{one.key}.toml": dump(recorded()[0]).encode()}


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")), st.booleans())
def test_a_file_beside_is_the_same_again(was: list[str], now: list[str], end: bool) -> None:
    merged, resolved = ("\n".join(text) + "\n" * end for text in (was, now))
    found = changes("b.py", merged, resolved)
    assert found is None or applied(merged, found) == resolved


def test_changes_beside_are_found_by_the_lines_around_them() -> None:
    merged = "".join(f"{number}\n" for number in range(30))
    resolved = merged.replace("5\n6\n", "five\n6\n", 1).replace("20\n", "")
    found = changes("b.py", merged, resolved)
    assert found == (
        Beside("b.py", "2\n3\n4\n", "5\n", "five\n", "6\n7\n8\n"),
        Beside("b.py", "17\n18\n19\n", "20\n", "", "21\n22\n23\n"),
    )
    assert applied("more\n" + merged, found) == "more\n" + resolved
    assert applied(merged.replace("7\n", "other\n", 1), found) is None
    assert applied(merged + merged, found) is None
    assert changes("b.py", "a\n" * 20, "a\n" * 21) is None


TEXT = (
    st.text()
    | st.text(st.sampled_from("a \t\n"))
    | st.text(st.sampled_from("a'\"\\ \n"))
    | st.lists(st.sampled_from(["a", "'''", '"""', "\\", "\n"])).map("".join)
    | st.text(st.sampled_from("a \t\r\n\u202e\x00\x7f\u2028\U0001f600é"))
)


@given(TEXT, TEXT, TEXT, TEXT)
def test_a_dump_gives_back_every_text(base: str, ours: str, theirs: str, resolved: str) -> None:
    hunk = Hunk("b\n", base, ours, theirs, "")
    one = Resolution(hunk.key, "ä/b c.py", "gamma", PATCH, "v2.1", "b\n", base, ours, theirs, "", resolved)
    text = dump(one)
    table = tomllib.loads(text)
    assert [table[name] for name in ("base", "ours", "theirs", "resolved")] == [base, ours, theirs, resolved]
    # Neither checking out with Windows' line ends nor taking away blanks at line ends changes it, and nothing in it is unseen.
    assert tomllib.loads(text.replace("\n", "\r\n")) == table
    assert tomllib.loads("\n".join(line.rstrip() for line in text.split("\n"))) == table
    assert all(char.isprintable() or char in "\n\t" for char in text)


def test_a_dump_is_readable() -> None:
    code = 'printf("%d\\n", x);\n\treturn """doc""";\n'
    one = replace(recorded()[0], resolved=code, after="")
    assert dump(one) == (
        "# SPDX-License-Identifier: Apache-2.0\n"
        "# A conflict that a person resolved; `stack resolutions show` shows it as one.\n"
        f'upstream = "gamma"\npatch = "{PATCH}"\npath = "a.py"\nrung = "v2.1"\n'
        "before = '''\ntwo\nthree\nfour\n'''\nbase = '''\nfive\n'''\nours = '''\n5\n'''\ntheirs = '''\nFIVE\n'''\n"
        f"after = \"\"\nresolved = '''\n{code}'''\n"
    )
    assert dump(replace(one, resolved="a'''\\ \n\u202e")).endswith('resolved = """\na\'\'\'\\\\\\u0020\n\\u202e"""\n')


def test_shown_on_a_terminal() -> None:
    assert shown("a\tb \\\n\x1b[31m\u202ered\nend") == ("a\tb \\", "\\u001b[31m\\u202ered", "end")


LINE = st.sampled_from(["a\n", "b\n", "\n", "}\n", "c\r\n", "d"])
LINES = st.lists(LINE, max_size=7)


def data(lines: list[str]) -> bytes:
    """A file of these lines; `d` ends no line and so only stands last."""
    return "".join(f"{line}\n" if line == "d" and place + 1 < len(lines) else line for place, line in enumerate(lines)).encode()


@settings(deadline=None)  # each runs git
@given(base=LINES, ours=LINES, theirs=LINES)
def test_the_merge_is_git_s(
    base: list[str], ours: list[str], theirs: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    three = [data(ours), data(base), data(theirs)]
    merged = merge(three[1], three[0], three[2])
    assert merged is not None
    folder = write(tmp_path_factory.mktemp("merge"), dict(zip("obt", three, strict=True)))
    for side in ("ours", "theirs"):
        expected = subprocess.run(
            ["git", "merge-file", "-p", f"--{side}", "o", "b", "t"], cwd=folder, capture_output=True, check=True
        ).stdout
        joined = merged.joined([getattr(hunk, side) for hunk in merged.hunks])
        assert joined.encode() == expected


@settings(deadline=None)  # each runs git
@given(base=LINES, ours=LINES, theirs=LINES, parts=st.lists(LINES, min_size=4, max_size=4))
def test_what_is_recorded_is_reproduced(
    base: list[str], ours: list[str], theirs: list[str], parts: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    three = data(base), data(ours), data(theirs)
    merged = merge(*three)
    assert merged is not None
    person = merged.joined([data(part).decode() for part in parts][: len(merged.hunks)]) if len(merged.hunks) <= 4 else None
    for file in (person and person.encode(), data([line for part in parts for line in part])):
        try:
            new = recorded(*three, file or b"")
        except NotRecorded:
            continue
        applied = kept(tmp_path_factory.mktemp("kept"), *new).apply("a.py", *three)
        assert applied is not None
        assert (applied.data, applied.offered) == (file or b"", ())


# Base, ours and theirs; each letter is a line. A merge by histogram, as a working tree shows it, and `git merge-file` cut these otherwise.
CUT_OTHERWISE = [
    ("xcca-b}-a", "xcca-b-}a", "xcca-}abbc-}a"),
    ("-}caa}bbxaa", "-}caa}bbaxbaxa", "-taa}bbtxa"),
    ("}xxcxc--c-ax-", "}xxcxca-c-ax-", "}xxcc-}--cxabx-"),
    ("caa}bb", "caacc}bb", "t}acbbaab"),
]


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize("letters", CUT_OTHERWISE)
def test_one_side_of_what_a_working_tree_shows_is_accepted(tmp_path: Path, letters: tuple[str, str, str], side: str) -> None:
    base, ours, theirs = ("".join(f"{letter}\n" for letter in version).encode() for version in letters)
    run = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "advice.detachedHead=false"]
    git.run(["init", "--quiet", str(tmp_path)])
    commits = []
    for data, parent in ((base, None), (ours, 0), (theirs, 0)):
        if parent is not None:
            git.run([*run, "checkout", "--quiet", commits[parent]], cwd=tmp_path)
        (tmp_path / "a.py").write_bytes(data)
        git.run(["add", "a.py"], cwd=tmp_path)
        git.run([*run, "commit", "--quiet", "-m", "x"], cwd=tmp_path)
        commits.append(git.text(["rev-parse", "HEAD"], cwd=tmp_path))
    git.run([*run, "checkout", "--quiet", commits[1]], cwd=tmp_path)
    git.run([*run, "cherry-pick", "--allow-empty", "--keep-redundant-commits", f"-X{side}", commits[2]], cwd=tmp_path)
    person = (tmp_path / "a.py").read_bytes()
    applied = kept(tmp_path / "kept", *recorded(base, ours, theirs, person)).apply("a.py", base, ours, theirs)
    assert applied is not None
    assert applied.data == person


def test_what_the_other_way_of_cutting_found_still_fits(tmp_path: Path) -> None:
    """Resolutions that were written before working trees' own bounds counted."""
    base, ours, theirs = ("".join(f"{letter}\n" for letter in version).encode() for version in CUT_OTHERWISE[0])
    merged = merge(base, ours, theirs)
    assert merged is not None
    person = merged.joined([hunk.theirs for hunk in merged.hunks]).encode()
    applied = kept(tmp_path, *recorded(base, ours, theirs, person)).apply("a.py", base, ours, theirs)
    assert applied is not None
    assert applied.data == person


def test_a_missing_folder_has_none(tmp_path: Path) -> None:
    assert list(Resolutions.load(tmp_path / "none")) == []


def loading(folder: Path) -> str:
    with pytest.raises(StackError) as caught:
        Resolutions.load(folder)
    assert caught.value.remedy
    return str(caught.value).replace(f"{folder}/", "")


EDITS = {
    "unknown key": ("rung =", 'why = "x"\nrung =', "{key}.toml: why is an unknown key"),
    "missing": ('rung = "v2.1"\n', "", "{key}.toml: rung is missing: add it"),
    "hunk": ("FIVE\n'''\na", "SIX\n'''\na", "{key}.toml: base, ours and theirs have the key "),
    "no TOML": ("rung =", "<<<<<<< HEAD\nrung =", "{key}.toml: "),
    "rung": ('"v2.1"', '"v2 1"', "{key}.toml: rung is 'v2 1': it has to be a release tag or a commit"),
    "upstream": ('"gamma"', '"Gamma"', "{key}.toml: upstream is 'Gamma'"),
    "patch": ("hook-main.patch", "hook-main", "{key}.toml: patch is 'one/gamma/hook-main'"),
    "path": ('"a.py"', '"../a.py"', "{key}.toml: path is '../a.py', which climbs out with"),
    "number": ('"v2.1"', "2.1", "{key}.toml: rung is 2.1"),
    "surroundings": ("'''\ntwo", "'''\none\ntwo", "{key}.toml: before has more than 3 lines"),
    "runs together": ("5, FIVE\n", "5, FIVE", "{key}.toml: resolved does not end with the end of a line"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_that_is_wrong(tmp_path: Path, edit: str) -> None:
    old, new, message = EDITS[edit]
    [one] = recorded()
    text = dump(one)
    assert text.count(old) == 1
    write(tmp_path, {f"{one.key}.toml": text.replace(old, new).encode()})
    assert loading(tmp_path).startswith(message.format(key=one.key))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"b.py"', '"../b.py"', "{key}.toml: beside[0].path is '../b.py', which climbs out with"),
        ("\nx\n", "", "{key}.toml: beside[0].before is empty, and so are old and after"),
        ("new =", "gnu =", "{key}.toml: beside[0].new is missing"),
    ],
)
def test_a_change_beside_that_is_wrong(tmp_path: Path, old: str, new: str, message: str) -> None:
    one = replace(recorded()[0], beside=(Beside("b.py", "x\n", "", "y\n", ""),))
    text = dump(one)
    assert text.count(old) == 1
    write(tmp_path, {f"{one.key}.toml": text.replace(old, new).encode()})
    assert loading(tmp_path).startswith(message.format(key=one.key))


def test_files_that_are_no_resolutions(tmp_path: Path) -> None:
    [one] = recorded()
    text = dump(one).encode()
    for name in ("notes.toml", f"{one.key}-1.toml", f"{one.key}-02.toml", f"{one.key.upper()}x.toml"):
        place = write(tmp_path / name, {name: text})
        assert loading(place).startswith(f"{name} is no resolution: its name has to be <key>.toml")
    assert list(Resolutions.load(write(tmp_path / "more", {f"{one.key}.toml": text, "README.md": b"", ".x": b""}))) == [one]
    latin = write(tmp_path / "latin", {f"{one.key}.toml": text + b"# \xe4\n"})
    assert loading(latin).startswith(f"{one.key}.toml is not UTF-8")
    twice = write(tmp_path / "twice", {f"{one.key}.toml": text, f"{one.key}-2.toml": text})
    assert loading(twice) == f"{one.key}.toml resolves the same conflict as {one.key}-2.toml: remove one of them"
    (tmp_path / "folder" / f"{one.key}.toml").mkdir(parents=True)
    assert loading(tmp_path / "folder").startswith(f"{one.key}.toml cannot be read (Is a directory)")


def test_links(tmp_path: Path) -> None:
    [one] = recorded()
    write(tmp_path / "away", {f"{one.key}.toml": dump(one).encode()})
    (tmp_path / "link").symlink_to("away")
    with pytest.raises(StackError, match="link is a link: put the folder itself there"):
        Resolutions.load(tmp_path / "link")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / f"{one.key}.toml").symlink_to(f"../away/{one.key}.toml")
    assert loading(tmp_path / "here") == f"{one.key}.toml is a link: put the file itself there"


def test_a_person_may_edit_what_replaces_it(tmp_path: Path) -> None:
    [one] = recorded()
    text = dump(one).replace("5, FIVE", "five or so")
    applied = Resolutions.load(write(tmp_path, {f"{one.key}.toml": text.encode()})).apply("a.py", BASE, OURS, THEIRS)
    assert applied is not None
    assert applied.data == PERSON.replace(b"5, FIVE", b"five or so")


def test_find_and_drop(tmp_path: Path) -> None:
    [one] = recorded()
    other = replace(one, before="x\n")
    folder = tmp_path / "stacks/resolutions"
    known = kept(folder, one, other)
    names = [one.key, f"{one.key}-2"]
    assert [known.find(name) for name in names] == names
    for beginning, message in (
        (one.key[:4], f"several keys begin with {one.key[:4]}: name one of {one.key}, {one.key}-2"),
        (one.key[:3], f"'{one.key[:3]}' is no key: name at least 4 of its hexadecimal digits"),
        ("../x", "'../x' is no key: name at least 4"),
        ("0000", "no resolution 0000: `stack resolutions list` shows all"),
    ):
        for call in (known.find, lambda name: drop(tmp_path, [names[1], name])):
            with pytest.raises(StackError) as caught:
                call(beginning)
            assert str(caught.value).startswith(message)
    assert drop(tmp_path, [names[1], names[1]]) == (names[1],)
    assert list(standing(tmp_path)) == [one]
    assert drop(tmp_path, [one.key[:5]]) == (one.key,)
    assert not folder.exists()
    switch.undo(tmp_path)
    switch.undo(tmp_path)
    assert list(standing(tmp_path)) == list(known)


def test_what_changed_meanwhile_is_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [one] = recorded()
    folder = tmp_path / "stacks/resolutions"
    kept(folder, one)
    file = folder / f"{one.key}.toml"
    apply = switch.apply

    def late(root: Path, *args: object, **options: object) -> object:
        file.write_text(dump(one) + "# mine\n")
        return apply(root, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(switch, "apply", late)
    with pytest.raises(StackError, match="was changed while this command ran"):
        drop(tmp_path, [one.key])
    assert file.exists()


def test_settings_of_the_user_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository around, or settings, could choose another style or algorithm."""
    expected = recorded()
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for name, value in (("merge.conflictStyle", "zdiff3"), ("diff.algorithm", "histogram"), ("diff.context", "0")):
        subprocess.run(["git", "config", name, value], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.fspath(tmp_path / ".git/config"))
    assert recorded() == expected
