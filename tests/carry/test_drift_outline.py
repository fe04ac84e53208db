# SPDX-License-Identifier: Apache-2.0
"""A quick look at a file finds what parsing the whole file finds; parts of a file's text are read like the whole."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.carry.drift import check
from stack.carry.drift.chunks import chunks, imports
from stack.carry.drift.outline import bodiless, outline

from .test_drift_python import marked, tree
from .trees import Scratch

MINE = """\
 import torch
 from pkg import tools
 from pkg.api import make as build, Size
 from pkg.other import unused


 def near(a):
     return a


 class Mine:
     def first(self):
         return unused()

     def second(self, x):
+        y = build(x, tools.cut(near(x)))
+        return Size.BIG, Size(1).of(y), torch.gone(y)
"""
PACKAGE = {
    "pkg/__init__.py": "from .tools import cut as cut\n",
    "pkg/tools.py": "def cut(x):\n    return x\n",
    "pkg/api.py": "from .making import make\n\n\nclass Size:\n    BIG = 1\n\n    def __init__(self, n):\n        pass\n",
    "pkg/making.py": "def make(x, y):\n    return x\n",
    "pkg/other.py": "def unused():\n    pass\n",
}


def problems(
    scratch: Scratch,
    now: dict[str, str] | None = None,
    mine: str = MINE,
    was: str | None = None,
    own: str | None = None,
) -> list[str]:
    """Return what is wrong with files of the new tree changed; `was` is the patched file on the old base, `own` upstream's.

    Each time the quick look, which needs upstream's own file, is compared with parsing the whole file.
    """
    content, added = marked(mine)
    old = marked(was)[0] if was is not None else content
    theirs = "".join(line[1:] + "\n" for line in (own or mine).splitlines() if not line.startswith("+"))
    new, before, upstream = (
        tree(scratch, files)
        for files in (
            {**PACKAGE, **(now or {}), "pkg/mine.py": content},
            {**PACKAGE, "pkg/mine.py": old},
            {**PACKAGE, **(now or {}), "pkg/mine.py": theirs},
        )
    )
    quick = check(scratch.objects, new, {"pkg/mine.py": added}, before=before, upstream=upstream)
    assert quick == check(scratch.objects, new, {"pkg/mine.py": added}, before=before)
    return [drift.problem.partition(":")[0] for drift in quick]


@pytest.mark.parametrize(
    "now",
    [
        {},
        {"pkg/other.py": "def unused(more):\n    pass\n"},  # no added line uses it
        {"pkg/making.py": "import os\n\n\ndef make(x, y):\n    return os.fspath(x)\n"},
        {"pkg/tools.py": "def cut(x):\n    return -x\n\n\ndef new():\n    pass\n"},
        {"pkg/api.py": PACKAGE["pkg/api.py"] + "\n    def more(self):\n        pass\n"},
    ],
)
def test_what_added_lines_rely_on_is_unchanged(scratch: Scratch, now: dict[str, str]) -> None:
    assert problems(scratch, now) == []


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({"pkg/making.py": "def make(x):\n    return x\n"}, ["this call no longer fits make"]),
        ({"pkg/making.py": "make = 1\n"}, []),
        ({"pkg/making.py": "class make:\n    pass\n"}, []),
        ({"pkg/api.py": PACKAGE["pkg/api.py"].replace("from .making", "from .tools")}, []),
        ({"pkg/api.py": PACKAGE["pkg/api.py"].replace("n):", "n, m):")}, ["this call no longer fits Size"]),
        ({"pkg/api.py": "from .making import *\n\nclass Size:\n    def __init__(self, n):\n        pass\n"}, []),
        ({"pkg/tools.py": "def slice(x):\n    return x\n"}, ["module pkg.tools has no cut"]),
        ({"pkg/tools.py": "from .other import *\n"}, ["module pkg.tools has no cut"]),
    ],
)
def test_what_added_lines_rely_on_has_changed(scratch: Scratch, now: dict[str, str], found: list[str]) -> None:
    assert problems(scratch, now) == found


def test_what_is_missing_on_both_bases(scratch: Scratch) -> None:
    mine = MINE.replace("pkg.other", "pkg.gone").replace("near(x)", "unused(x)")
    assert problems(scratch, mine=mine) == []
    assert problems(scratch, mine=MINE.replace("import torch", "from pkg.other import *")) == []
    assert problems(scratch, mine=MINE.replace("torch.gone(y)", 'os.environ["VLLM_MINE"]')) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (("def near(a):", "def near(a, b):"), ["this call no longer fits near"]),
        (("     return a\n", "     return -a\n"), []),
        ((" def near(a):", " def next_to(a):"), ["nothing in this file binds near"]),
        ((" from pkg import tools\n", " from pkg import api as tools\n"), ["module pkg.api has no cut"]),
        ((" import torch\n", ""), ["nothing in this file binds torch"]),
        ((" from pkg.other import unused\n", ""), []),
        (("         return unused()", "         return 1"), []),
    ],
)
def test_a_file_that_upstream_changed(scratch: Scratch, change: tuple[str, str], found: list[str]) -> None:
    assert change[0] in MINE
    assert problems(scratch, mine=MINE.replace(*change), was=MINE) == found


def test_a_name_that_is_bound_no_longer(scratch: Scratch) -> None:
    bound = MINE.replace(" class Mine:", " for near, far in ():\n     pass\n\n\n class Mine:")
    gone = bound.replace("for near, far", "for n, far").replace("def near", "def _near")
    assert problems(scratch, mine=gone, was=bound) == ["nothing in this file binds near"]
    handled = MINE.replace(" class Mine:", " with open(1) as table:\n     pass\n\n\n class Mine:").replace("near(x)", "table")
    assert problems(scratch, mine=handled) == []
    assert problems(scratch, mine=handled.replace("as table", "as chart"), was=handled) == ["nothing in this file binds table"]


def test_what_is_neither_old_nor_upstreams_own_is_read(scratch: Scratch) -> None:
    """Lines that only the merge put together may be no Python at all."""
    broken = MINE.replace(" def near(a):", " def near(a):\n <<<<<<<")
    for own in (MINE, MINE.replace("return a\n", "return -a\n")):
        (problem,) = problems(scratch, mine=broken, was=MINE, own=own)
        assert problem.startswith("this is no valid Python")


SOURCE = '''\
"""Words.
def no(function):
    at all
"""
import a  # of course
from b import (  # many
    c,  # def
    d,
)

@cached(
    1
)
def f(x: "str" = "#", *, y=lambda: {":": 1}) -> None:
    """One.

def g():
    """
    import inside
    return {"def h(": ":"}

async def g(  # a comment (
    x,
): return x

class K(Base[(1)]):
    """def k():"""
    n: int = 1

    @property
    def one(self):
        if self:

            return 1
    # a comment
        return 2

    class Inner:
        def two(self, *a, **k): pass
        def three(self):
            text = """
  def four(): (
"""
            return text

if a:
    def h(): return 1
else:
    from e import h

\tdef
'''


def dumped(data: bytes) -> object:
    found = outline(data)
    return found and ([ast.dump(each) for each in (*found.imports, *found.definitions)], found.names, found.dynamic)


def whole(data: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patched:
        patched.setattr("stack.carry.drift.outline.bodiless", lambda lines: None)
        return dumped(data)


def test_an_outline_without_bodies_is_the_outline(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = SOURCE.encode().split(b"\n")
    for size in range(len(lines)):  # most of these are no Python
        data = b"\n".join(lines[:size])
        assert dumped(data) == whole(data, monkeypatch), lines[size - 1]
    assert dumped(b"\n".join(lines[:-2])) is not None


def test_bodies_are_left_out_and_lines_keep_their_numbers() -> None:
    lines = b"def f(\n    x,\n):\n    return 1\n\n    # end\n\n\nclass A:\n    def g(self):\n        return 2\n".split(b"\n")
    left = bodiless(lines)
    assert left is not None
    assert left[3:8] == [b" pass", b"", b"", b"", b""]
    assert [place for place, line in enumerate(left) if line] == [0, 1, 2, 3, 8, 9, 10]
    assert bodiless(lines, {10})[10] == b"        return 2"  # type: ignore[index]
    assert bodiless([b"def f(x", b"    pass"]) is None
    assert bodiless([b"def f():", b'    x = """', b"y"]) is None


@given(st.lists(st.sampled_from(SOURCE.split("\n")), max_size=12))
def test_chunks_are_the_file(lines: list[str]) -> None:
    data = "\n".join(lines).encode()
    found = chunks(data)
    assert b"".join(chunk.text for chunk in found).rstrip(b"\n") == data.rstrip(b"\n")
    assert [line for chunk in found for line in chunk.lines] == (data if data.endswith(b"\n") else data + b"\n")[:-1].split(
        b"\n"
    )
    assert all(chunk.start == sum(len(before.lines) for before in found[:place]) for place, chunk in enumerate(found))


def test_imports_of_a_file_or_of_what_is_not_shown() -> None:
    data = b"import a\nfrom b import (\n    c,\n)\ndef f():\n    from .d import e, \\\n        g\nx = 'import y'\n"
    assert [ast.unparse(each) for each in imports(data)] == ["import a", "from b import c", "from .d import e, g"]
    shown = [b""] * 9
    shown[1] = b"from b import ("
    assert [ast.unparse(each) for each in imports(data, shown)] == ["import a", "from .d import e, g"]
