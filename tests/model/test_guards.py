# SPDX-License-Identifier: Apache-2.0
"""`guards.toml`: what is written is read again, comments stay, and what is not a guard gets one clear line."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.model import document, guards
from stack.model import stack as stacks
from stack.model.guards import Guard, Kind

NAMES = st.from_regex(guards.NAME, fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(str.strip)
PATHS = st.from_regex(r"[a-z]{1,8}(/[a-z_]{1,8}){0,3}\.py", fullmatch=True)
MEMBERS = st.from_regex(r"[A-Za-z_]{1,9}(\.[a-z_]{1,9})?", fullmatch=True)
COMMITS = st.from_regex(r"[0-9a-f]{40}", fullmatch=True)


@st.composite
def guard(draw: st.DrawFn) -> Guard:
    kind = draw(st.sampled_from(list(Kind)))
    name, reason, at = draw(NAMES), draw(TEXTS), draw(st.one_of(st.just(""), COMMITS))
    path, member = draw(PATHS), draw(MEMBERS)
    match kind:
        case Kind.TEXT:
            return Guard(name, "up", kind, path, reason, at, text=draw(TEXTS))
        case Kind.PATTERN:
            return Guard(name, "up", kind, path, reason, at, text=f"LIMIT = <n>{draw(st.sampled_from(['', '*', ' end']))}")
        case Kind.DEFINITION:
            return Guard(name, "up", kind, f"{path}::{member}", reason, at)
        case Kind.COPIED:
            target = draw(st.sampled_from([path, f"{path}::{member}"]))
            return Guard(name, "up", kind, target, reason, at, file=draw(PATHS), hash=draw(COMMITS))
        case Kind.PATCHED:
            target = f"{path.removesuffix('.py').replace('/', '.')}:{member}"
            return Guard(name, "up", kind, target, reason, at, signature=draw(TEXTS), defined=path)


def read(text: str) -> tuple[Guard, ...]:
    return guards.read(document.Table(tomllib.loads(text), file=Path("guards.toml")))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(guard(), min_size=1, max_size=4, unique_by=lambda each: each.name), guard())
def test_what_is_written_is_read_again_and_edits_touch_nothing_else(made: list[Guard], other: Guard) -> None:
    text = guards.edited(None, {each.name: each for each in made})
    assert read(text) == tuple(made)
    commented = f"# above\n{text}# below\n"
    replaced = guards.edited(commented, {made[0].name: Guard(**{**fields(other), "name": made[0].name})})
    assert replaced.startswith("# above\n")
    assert "# below\n" in replaced
    assert read(replaced)[1:] == tuple(made[1:])
    assert read(replaced)[0].target == other.target
    dropped = guards.edited(replaced, {made[0].name: None})
    assert read(dropped) == tuple(made[1:])


def fields(each: Guard) -> dict[str, object]:
    return {name: getattr(each, name) for name in Guard.__slots__}


WHOLE = '[x]\nupstream = "up"\nreason = "why"\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (WHOLE, "names 0 targets"),
        (f'{WHOLE}definition = "a.py::f"\ncopied = "a.py"\n', "names 2 targets"),
        (f'{WHOLE}definition = "../a.py::f"\n', "names a file that is not a path below the folder"),
        (f'{WHOLE}definition = "/a.py::f"\n', "names a file that is not a path below the folder"),
        (f'{WHOLE}definition = "a/.git/b.py::f"\n', "git"),
        (f'{WHOLE}definition = "a.py::f()"\n', "has a name that is not one of Python"),
        (f'{WHOLE}definition = "a.cu::v"\n', "has a text that is not one line"),
        (f'{WHOLE}definition = "a.py::f"\ncolour = "red"\n', "x.colour is an unknown key"),
        (f"{WHOLE}definition = 3\n", "x.definition is 3"),
        (f'{WHOLE}path = "a.py"\npattern = "{"*" * 401}"\n', "has more than 400 characters"),
        (f'{WHOLE}path = "a.py"\npattern = "{"{a|b}" * 12}"\n', "stands for more than 64 texts"),
        (f'{WHOLE}path = "a.py"\ntext = "{"x" * 4001}"\n', "has 4001 characters"),
        (f'{WHOLE}copied = "a.py"\nfile = "../../etc/passwd"\nhash = "{"0" * 40}"\n', "x.file is not a path below"),
        (f'{WHOLE}copied = "a.py"\nfile = "a.py"\nhash = "abc"\n', "x.hash is 'abc'"),
        (f'{WHOLE}patched = "a.b"\nsignature = "def ()"\ndefined = "a.py"\n', "x.patched is 'a.b'"),
        (f'{WHOLE}definition = "a.py::f"\nat = "HEAD"\n', "x.at is 'HEAD'"),
        ('["X Y"]\n', "is not a name of a guard"),
        ('x = "text"\n', "x is 'text'"),
        ("".join(f"[x{number}]\n" for number in range(1001)), "has 1001 guards"),
    ],
)
def test_what_is_no_guard_gets_one_line(text: str, why: str) -> None:
    with pytest.raises(StackError) as refused:
        read(text)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 700


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/stack.toml").write_text("series = []\n")
    (tmp_path / "pins.toml").write_text(f'[up]\ngit = "https://example.org/up"\ntag = "v1"\ncommit = "{"0" * 40}"\n')
    return tmp_path


def test_a_guard_of_an_unknown_upstream_is_refused(root: Path) -> None:
    (root / "stacks/guards.toml").write_text(f'{WHOLE.replace(chr(34) + "up", chr(34) + "other")}definition = "a.py::f"\n')
    with pytest.raises(StackError, match=r"x\.upstream is 'other', which has no pin: pinned: up"):
        stacks.load(root)


def test_a_link_and_a_huge_file_are_refused(root: Path) -> None:
    file = root / "stacks/guards.toml"
    (root / "elsewhere.toml").write_text("")
    file.symlink_to(root / "elsewhere.toml")
    with pytest.raises(StackError, match="is a link"):
        stacks.load(root)
    file.unlink()
    file.write_text("#" * (guards.LARGEST + 1))
    with pytest.raises(StackError, match="is larger than 512 KiB"):
        stacks.load(root)


def test_a_file_that_cannot_be_edited_is_left_alone() -> None:
    inline = 'x = { upstream = "up", reason = "why", definition = "a.py::f" }\n'
    assert read(inline)[0].name == "x"
    made = Guard("y", "up", Kind.DEFINITION, "a.py::g", "why")
    text = guards.edited(inline, {"y": made})
    assert [each.name for each in read(text)] == ["x", "y"]
