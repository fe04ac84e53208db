# SPDX-License-Identifier: Apache-2.0
"""Conflicts that are none are merged, and nothing that may be one."""

import ast
from textwrap import dedent

import pytest

from stack.carry.structure import Structured, layout, resolve


def merged(base: str, ours: str, theirs: str, path: str = "a.py") -> Structured | None:
    return resolve(path, *(dedent(text).lstrip("\n").encode() for text in (base, ours, theirs)))


def check(base: str, ours: str, theirs: str, expected: str, said: str = "", path: str = "a.py") -> None:
    result = merged(base, ours, theirs, path)
    assert result is not None
    assert result.data.decode() == dedent(expected).lstrip("\n")
    assert said in result.evidence


def test_imports_in_a_sorted_block() -> None:
    check(
        "import os\nimport sys\n\nx = 1\n",
        "import os\nimport re\nimport sys\n\nx = 1\n",
        "import os\nimport random\nimport sys\n\nx = 1\n",
        "import os\nimport random\nimport re\nimport sys\n\nx = 1\n",
        "both sides add to the import block at line 2: import re; import random",
    )


def test_imports_in_no_order_ours_first() -> None:
    check(
        "import sys\nimport os\n\nx = 1\n",
        "import sys\nimport os\nimport zlib\n\nx = 1\n",
        "import sys\nimport os\nimport abc\n\nx = 1\n",
        "import sys\nimport os\nimport zlib\nimport abc\n\nx = 1\n",
    )


def test_the_same_import_once() -> None:
    check(
        "import os\nimport sys\n\nx = 1\n",
        "import os\nimport re\nimport sys\nimport types\n\nx = 1\n",
        "import os\nimport re\nimport sys\nimport zlib\n\nx = 1\n",
        "import os\nimport re\nimport sys\nimport types\nimport zlib\n\nx = 1\n",
    )


def test_imports_of_two_sections_stay_in_theirs() -> None:
    check(
        "import os\nimport torch\n",
        "import os\nimport re\n\nimport torch\n",
        "import os\n\nimport numpy\nimport torch\n",
        "import os\nimport re\n\nimport numpy\nimport torch\n",
    )


def test_imported_names() -> None:
    check(
        "from a import (\n    b,\n    f,\n)\n",
        "from a import (\n    b,\n    e,\n    f,\n)\n",
        "from a import (\n    b,\n    d,  # why d\n    f,\n)\n",
        "from a import (\n    b,\n    d,  # why d\n    e,\n    f,\n)\n",
        "both sides add to the import at line 3: e; d",
    )
    check("from a import b, c\n", "from a import b, c, d\n", "from a import b, c, e\n", "from a import b, c, d, e\n")


def test_imports_in_a_function() -> None:
    check(
        "def f():\n    import a\n    return a\n",
        "def f():\n    import a\n    import b\n    return a\n",
        "def f():\n    import a\n    import c\n    return a\n",
        "def f():\n    import a\n    import b\n    import c\n    return a\n",
    )


@pytest.mark.parametrize(("name", "brackets"), [("__all__", "[]"), ("x", "{}")])
def test_exported_names_and_sets(name: str, brackets: str) -> None:
    start, end = f"{name} = {brackets[0]}", brackets[1]
    check(
        f"{start}\n    1,\n    2,\n{end}\n",
        f"{start}\n    1,\n    2,\n    3,\n{end}\n",
        f"{start}\n    1,\n    2,\n    # about four\n    # and more\n    4,  # it is\n{end}\n",
        f"{start}\n    1,\n    2,\n    3,\n    # about four\n    # and more\n    4,  # it is\n{end}\n",
    )
    check(f"{start}1{end}\n", f"{start}1, 2{end}\n", f"{start}1, 3{end}\n", f"{start}1, 2, 3{end}\n")
    check(f"{start}1{end}\n", f"{start}2, 1{end}\n", f"{start}3, 1{end}\n", f"{start}2, 3, 1{end}\n")


def test_a_set_without_a_last_comma() -> None:
    check(
        "x = {\n    1,\n    2\n}\n",
        "x = {\n    1,\n    2,\n    3\n}\n",
        "x = {\n    1,\n    2,\n    4  # four\n}\n",
        "x = {\n    1,\n    2,\n    3,\n    4  # four\n}\n",
    )


def test_a_sorted_list_stays_sorted() -> None:
    check(
        '__all__ = [\n    "a",\n    "b",\n    "e",\n]\n',
        '__all__ = [\n    "a",\n    "b",\n    "d",\n    "e",\n]\n',
        '__all__ = [\n    "a",\n    "b",\n    "c",\n    "e",\n]\n',
        '__all__ = [\n    "a",\n    "b",\n    "c",\n    "d",\n    "e",\n]\n',
    )


def test_elements_in_parentheses_and_of_many_lines() -> None:
    lines = "    (\n        two\n        (lines)\n    ),\n"
    check(
        "x = {\n    (a),\n}\n",
        "x = {\n    (a),\n    (lambda a, b: a)(1, 2),\n}\n",
        f"x = {{\n    (a),\n{lines}}}\n",
        f"x = {{\n    (a),\n    (lambda a, b: a)(1, 2),\n{lines}}}\n",
    )


def test_dicts() -> None:
    check(
        "x = {\n    'é': 1,\n}\n",
        "x = {\n    'é': 1,\n    'b': 2,\n}\n",
        "x = {\n    'é': 1,\n    'c': [\n        3,\n    ],\n}\n",
        "x = {\n    'é': 1,\n    'b': 2,\n    'c': [\n        3,\n    ],\n}\n",
        "both sides add to the dict at line 4: 'b'; 'c'",
    )


def test_inside_of_what_is_inside() -> None:
    check(
        "class A:\n    x = {\n        'a': {1},\n    }\n",
        "class A:\n    x = {\n        'a': {1, 2},\n    }\n",
        "class A:\n    x = {\n        'a': {1, 3},\n    }\n",
        "class A:\n    x = {\n        'a': {1, 2, 3},\n    }\n",
    )


def test_arguments_and_parameters() -> None:
    check(
        "f(\n    a,\n    b=1,\n)\n",
        "f(\n    a,\n    b=1,\n    c=2,\n)\n",
        "f(\n    a,\n    b=1,\n    d=2,\n)\n",
        "f(\n    a,\n    b=1,\n    c=2,\n    d=2,\n)\n",
        "argument list",
    )
    check("f(a)\n", "f(a, c=2)\n", "f(a, d=2)\n", "f(a, c=2, d=2)\n")
    check("f(\n    a\n)\n", "f(\n    a, c=2\n)\n", "f(\n    a, d=2\n)\n", "f(\n    a, c=2, d=2\n)\n")
    check(
        "def f(a, *, b=1, **k):\n    return a\n",
        "def f(a, *, b=1, c=2, **k):\n    return a\n",
        "def f(a, *, b=1, d=3, **k):\n    return a\n",
        "def f(a, *, b=1, c=2, d=3, **k):\n    return a\n",
        "parameter list",
    )
    by_name, both = "def f(a, *, c=2): 0\n", "def f(a, b=1, *, c=2): 0\n"
    check("def f(a, *, z=0): 0\n", by_name.replace("*,", "*, z=0,"), both.replace("c=2", "z=0"), both.replace("*,", "*, z=0,"))


def test_members_of_classes_and_enums() -> None:
    check(
        "class A(Enum):\n    X = 1\n",
        "class A(Enum):\n    X = 1\n    Y = 2\n",
        "class A(Enum):\n    X = 1\n    Z = 3\n",
        "class A(Enum):\n    X = 1\n    Y = 2\n    Z = 3\n",
        "both sides add to the body of class A at line 4: Y; Z",
    )
    check(
        "class A(Enum):\n    X = auto()\n",
        "class A(Enum):\n    X = auto()\n    Y = 16\n",
        "class A(Enum):\n    X = auto()\n    Z = 17\n",
        "class A(Enum):\n    X = auto()\n    Y = 16\n    Z = 17\n",
    )
    check(
        "class A:\n    def f(self):\n        pass\n",
        "class A:\n    def f(self):\n        pass\n\n    def g(self):\n        pass\n        # still g\n",
        "class A:\n    def f(self):\n        pass\n\n    # about h\n    @property\n    def h(self):\n        pass\n",
        "class A:\n    def f(self):\n        pass\n\n    def g(self):\n        pass\n        # still g\n\n"
        "    # about h\n    @property\n    def h(self):\n        pass\n",
    )


def test_decorators() -> None:
    check("def f():\n    pass\n", "@a\ndef f():\n    pass\n", "@b\ndef f():\n    pass\n", "@a\n@b\ndef f():\n    pass\n")
    check(
        "@z\ndef f():\n    pass\n",
        "@mark.slow\n@z\ndef f():\n    pass\n",
        "@mark.cpu(1)\n@z\ndef f():\n    pass\n",
        "@mark.slow\n@mark.cpu(1)\n@z\ndef f():\n    pass\n",
        "decorator stack",
    )


def test_definitions() -> None:
    check(
        "def f():\n    pass\n",
        "def f():\n    pass\n\n\nX = 1\n\n\ndef g():\n    pass\n",
        "def f():\n    pass\n\n\n# about h\n@deco\ndef h():\n    pass\n",
        "def f():\n    pass\n\n\nX = 1\n\n\ndef g():\n    pass\n\n\n# about h\n@deco\ndef h():\n    pass\n",
        "both sides add to the definitions at line 12: X, g; h",
    )


def test_imports_stay_with_imports() -> None:
    check(
        "import a\n",
        "import a\nimport b\n\n\ndef f():\n    pass\n",
        "import a\nimport c\n\n\ndef g():\n    pass\n",
        "import a\nimport b\nimport c\n\n\ndef f():\n    pass\n\n\ndef g():\n    pass\n",
    )


def test_definitions_that_git_cuts_in_the_middle() -> None:
    body = "    x = 1\n    y = 2\n    return x\n"
    check(
        f"@d\ndef a():\n{body}\n\n@d\ndef z():\n{body}",
        f"@d\ndef a():\n{body}\n\n@d\ndef b():\n{body}\n\n@d\ndef z():\n{body}",
        f"@d\ndef a():\n{body}\n\n@d\ndef c():\n{body}\n\n@d\ndef z():\n{body}",
        f"@d\ndef a():\n{body}\n\n@d\ndef b():\n{body}\n\n@d\ndef c():\n{body}\n\n@d\ndef z():\n{body}",
    )


def test_what_ours_has_already_is_not_added() -> None:
    base = "def f(a):\n    x = 1\n    return x\n"
    ours = "def f(a):\n    x = 1\n    x = 2\n    x = 3\n    return x\n"
    check(base, ours, "def f(a):\n    x = 1\n    x = 2\n    return x\n", ours, "ours has all that theirs adds at line 3")


def test_other_changes_of_theirs_come_along() -> None:
    far = "".join(f"v{number} = {number}\n" for number in range(9))
    check(
        f"import a\n\n{far}",
        f"import a\nimport b\n\n{far}",
        f"import a\nimport c\n\n{far}v9 = 9\n",
        f"import a\nimport b\nimport c\n\n{far}v9 = 9\n",
    )


def test_what_landed_and_changed_since_is_not_brought_again() -> None:
    """Upstream took the parameter and then gave its use another form: git would bring the first form back without a word."""
    far = "".join(f"    v{number} = {number}\n" for number in range(9))
    end = "    return g(\n        a,\n    )\n"
    base = f"def f(\n    a,\n):\n{far}{end}"
    ours = f"def f(\n    a,\n    b=1,\n    c=2,\n):\n{far}    b = b + 1\n    v10 = 10\n    v11 = 11\n    v12 = 12\n{end}"
    theirs = f"def f(\n    a,\n    b=1,\n):\n{far}    return g(\n        a,\n        b,\n    )\n"
    assert merged(base, ours, theirs) is None


def test_what_landed_and_was_dropped_since_is_not_brought_again() -> None:
    assert merged("import a\n\n\nx = 1\n", "import a\n\n\n\nx = 1\n", "import a\n\nmark = skip\n\n\nx = 1\n") is None


def test_line_ends_of_windows() -> None:
    three = [
        text.replace("\n", "\r\n").encode() for text in ("x = {\n  1,\n}\n", "x = {\n  1,\n  2,\n}\n", "x = {\n  1,\n  3,\n}\n")
    ]
    result = resolve("a.py", *three)
    assert result is not None
    assert result.data == b"x = {\r\n  1,\r\n  2,\r\n  3,\r\n}\r\n"
    assert resolve("a.py", three[0], three[1], three[2].replace(b"\r", b"")) is None


def test_annotations_and_stubs() -> None:
    check("x: int\n", "x: int\ny: int\n", "x: int\nz: str\n", "x: int\ny: int\nz: str\n", path="a.pyi")


DATACLASS = "@dataclass\nclass A:\n    a: int\n"

DOUBTS = {
    "a key twice": ("x = {\n    'a': 1,\n}\n", "x = {\n    'a': 1,\n    'b': 2,\n}\n", "x = {\n    'a': 1,\n    'b': 3,\n}\n"),
    "an equal key": ("x = {\n    2: 1,\n}\n", "x = {\n    2: 1,\n    1: 2,\n}\n", "x = {\n    2: 1,\n    True: 3,\n}\n"),
    "a spread": ("x = {\n    2: 1,\n}\n", "x = {\n    2: 1,\n    1: 2,\n}\n", "x = {\n    2: 1,\n    **y,\n}\n"),
    "an argument twice": ("f(a)\n", "f(a, b=1)\n", "f(a, b=2)\n"),
    "arguments by position": ("f(a)\n", "f(a, b)\n", "f(a, c)\n"),
    "a position beside a keyword": ("f(a)\n", "f(a, b)\n", "f(a, c=1)\n"),
    "a number twice in a dict": (
        "IDS = {\n    'a': 0,\n}\n",
        "IDS = {\n    'a': 0,\n    'b': 1,\n}\n",
        "IDS = {\n    'a': 0,\n    'c': 1,\n}\n",
    ),
    "a number twice, written otherwise": (
        "IDS = {\n    'a': 1,\n}\n",
        "IDS = {\n    'a': 1,\n    'b': 1 << 2,\n}\n",
        "IDS = {\n    'a': 1,\n    'c': 0x4,\n}\n",
    ),
    "the next number twice": (
        "IDS = {\n    'a': next(n),\n}\n",
        "IDS = {\n    'a': next(n),\n    'b': len(n),\n}\n",
        "IDS = {\n    'a': next(n),\n    'c': len(n),\n}\n",
    ),
    "a number twice in the arguments of a dict": ("IDS = dict(a=0)\n", "IDS = dict(a=0, b=1)\n", "IDS = dict(a=0, c=1)\n"),
    "a number of two constants": ("A = 0\n", "A = 0\nB = 1\n", "A = 0\nC = 1\n"),
    "a number of two constants of a class": (
        "class A:\n    X = 0\n",
        "class A:\n    X = 0\n    Y = 1\n",
        "class A:\n    X = 0\n    Z = 1\n",
    ),
    "a dict whose last key is the default": (
        "x = {\n    'a': 1,\n}\nlast = list(x)[-1]\n",
        "x = {\n    'a': 1,\n    'b': 2,\n}\nlast = list(x)[-1]\n",
        "x = {\n    'a': 1,\n    'c': 3,\n}\nlast = list(x)[-1]\n",
    ),
    "a dict that is unpacked": (
        "x = {\n    'a': 1,\n}\na, *more = x.values()\n",
        "x = {\n    'a': 1,\n    'b': 2,\n}\na, *more = x.values()\n",
        "x = {\n    'a': 1,\n    'c': 3,\n}\na, *more = x.values()\n",
    ),
    "a dict that is numbered": (
        "x = {\n    'a': 1,\n}\nn = dict(enumerate(x))\n",
        "x = {\n    'a': 1,\n    'b': 2,\n}\nn = dict(enumerate(x))\n",
        "x = {\n    'a': 1,\n    'c': 3,\n}\nn = dict(enumerate(x))\n",
    ),
    "argument types": (
        "f.argtypes = [\n    a,\n]\n",
        "f.argtypes = [\n    a,\n    b,\n]\n",
        "f.argtypes = [\n    a,\n    c,\n]\n",
    ),
    "a record type": (
        "x = dtype([\n    ('a', 'i4'),\n])\n",
        "x = dtype([\n    ('a', 'i4'),\n    ('b', 'i4'),\n])\n",
        "x = dtype([\n    ('a', 'i4'),\n    ('c', 'i8'),\n])\n",
    ),
    "fields of a data class": (DATACLASS, DATACLASS + "    b: int = 1\n", DATACLASS + "    c: int = 2\n"),
    "fields of a named tuple": (
        "class A(NamedTuple):\n    a: int\n",
        "class A(NamedTuple):\n    a: int\n    b: int = 1\n",
        "class A(NamedTuple):\n    a: int\n    c: int = 2\n",
    ),
    "a command line": (
        "x = [\n    'docker',\n]\n",
        "x = [\n    'docker',\n    image,\n]\n",
        "x = [\n    'docker',\n    '--rm',\n]\n",
    ),
    "a list on one line": ('x = ["a", "b"]\n', 'x = ["a", "b", "c"]\n', 'x = ["a", "b", "d"]\n'),
    "a tuple": ("x = (1, 2)\n", "x = (1, 2, 3)\n", "x = (1, 2, 4)\n"),
    "parameters without default": ("def f(a):\n    pass\n", "def f(a, b):\n    pass\n", "def f(a, c):\n    pass\n"),
    "a parameter before ours": ("def f(a=1, b=2): 0\n", "def f(a=1, c=3, b=2): 0\n", "def f(a=1, d=4, b=2): 0\n"),
    "parameters by position": ("def f(a, b=1): 0\n", "def f(a, b=1, c=2): 0\n", "def f(a, b=1, d=3): 0\n"),
    "parameters by position only": ("def f(a=1, /): 0\n", "def f(a=1, b=2, /): 0\n", "def f(a=1, c=3, /): 0\n"),
    "statements of a function": ("def f():\n    a()\n", "def f():\n    a()\n    b()\n", "def f():\n    a()\n    c()\n"),
    "calls of a module": ("a()\n", "a()\nb()\n", "a()\nc()\n"),
    "assignments of a function": (
        "def f():\n    a = 1\n",
        "def f():\n    a = 1\n    b = 2\n",
        "def f():\n    a = 1\n    c = 3\n",
    ),
    "one function of two bodies": (
        "def f():\n    pass\n",
        "def f():\n    pass\n\n\ndef g():\n    return 1\n",
        "def f():\n    pass\n\n\ndef g():\n    return 2\n",
    ),
    "one name of two kinds": (
        "import a\n\nx = 1\n",
        "import a\nfrom c import b\n\nx = 1\n",
        "import a\nfrom d import b\n\nx = 1\n",
    ),
    "a name that is there": (
        "import a\n" + "x = 1\n" * 5 + "def b():\n    pass\n",
        "import a\nimport c\n" + "x = 1\n" * 5 + "def b():\n    pass\n",
        "import a\nfrom d import b\n" + "x = 1\n" * 5 + "def b():\n    pass\n",
    ),
    "one side uses what the other brings": ("A = 1\n", "A = 1\nB = 2\n", "A = 1\nC = B\n"),
    "a star": ("import a\n", "import a\nimport b\n", "import a\nfrom c import *\n"),
    "two chains of elif": (
        "if a:\n    x()\n",
        "if a:\n    x()\nelif b:\n    y()\n",
        "if a:\n    x()\nelif c:\n    z()\n",
    ),
    "an edit beside an addition": (
        "x = [\n    1,\n    2,\n]\n",
        "x = [\n    1,\n    3,\n]\n",
        "x = [\n    1,\n    2,\n    4,\n]\n",
    ),
    "two edits": ("x = [\n    1,\n]\n", "x = [\n    2,\n]\n", "x = [\n    3,\n]\n"),
    "a removal": ("x = [\n    1,\n    2,\n]\n", "x = [\n    1,\n]\n", "x = [\n    1,\n    2,\n    4,\n]\n"),
    "the same value in an enum": (
        "class A(Enum):\n    X = 1\n",
        "class A(Enum):\n    X = 1\n    Y = 2\n",
        "class A(Enum):\n    X = 1\n    Z = 2\n",
    ),
    "the next value of an int enum": (
        "class A(IntEnum):\n    X = auto()\n",
        "class A(IntEnum):\n    X = auto()\n    Y = auto()\n",
        "class A(IntEnum):\n    X = auto()\n    Z = auto()\n",
    ),
    "the next value of an enum": (
        "class A(Enum):\n    X = auto()\n",
        "class A(Enum):\n    X = auto()\n    Y = auto()\n",
        "class A(Enum):\n    X = auto()\n    Z = auto()\n",
    ),
    "numbers before a next value": (
        "class A(Enum):\n    X = 1\n    W = auto()\n",
        "class A(Enum):\n    X = 1\n    Y = 2\n    W = auto()\n",
        "class A(Enum):\n    X = 1\n    Z = 5\n    W = auto()\n",
    ),
    "the next value after another's number": (
        "class A(enum.Flag):\n    X = enum.auto()\n",
        "class A(enum.Flag):\n    X = enum.auto()\n    Y = 16\n",
        "class A(enum.Flag):\n    X = enum.auto()\n    Z = enum.auto()\n",
    ),
    "fields without default": (DATACLASS, DATACLASS + "    b: int = 1\n", DATACLASS + "    c: int\n"),
    "fields of a C structure": (
        "class A(Structure):\n    _fields_ = [\n        a,\n    ]\n",
        "class A(Structure):\n    _fields_ = [\n        a,\n        b,\n    ]\n",
        "class A(Structure):\n    _fields_ = [\n        a,\n        c,\n    ]\n",
    ),
    "options with values": (
        'x = [\n    "cc",\n]\n',
        'x = [\n    "cc",\n    "-I",\n    "a",\n]\n',
        'x = [\n    "cc",\n    "-I",\n    "b",\n]\n',
    ),
    "another sort of element": (
        'x = {\n    "cc",\n}\n',
        'x = {\n    "cc",\n    "b",\n}\n',
        'x = {\n    "cc",\n    (1, 2),\n}\n',
    ),
    "two values of one name": (
        "x = [\n    a,\n]\n",
        'x = [\n    a,\n    ("b", 1),\n]\n',
        'x = [\n    a,\n    ("b", 2),\n]\n',
    ),
    "two calls of one name": (
        "x = [\n    a,\n]\n",
        'x = [\n    a,\n    f("b", c=1),\n]\n',
        'x = [\n    a,\n    f("b", c=2),\n]\n',
    ),
    "an element that is there": (
        "x = [\n    1,\n    2,\n]\n",
        "x = [\n    1,\n    2,\n    3,\n]\n",
        "x = [\n    1,\n    2,\n    1,\n]\n",
    ),
    "an exported name that is there": (
        "__all__ = [\n    'a',\n    'b',\n]\n",
        "__all__ = [\n    'a',\n    'b',\n    'c',\n]\n",
        "__all__ = [\n    'a',\n    'b',\n    'a',\n]\n",
    ),
    "two decorators of one name": ("def f(): 0\n", "@lru_cache(1)\ndef f(): 0\n", "@lru_cache(2)\ndef f(): 0\n"),
    "a decorator that makes another thing": ("def f(): 0\n", "@cache\ndef f(): 0\n", "@property\ndef f(): 0\n"),
    "a comment removed": ("x = [\n    1,  # one\n]\n", "x = [\n    1,  # one\n    2,\n]\n", "x = [\n    1,\n    3,\n]\n"),
    "what does not parse": ("x = [\n    1,\n]\n", "x = [\n    1,\n    2,\n]\n", "x = [\n    1,\n    3\n    4,\n]\n"),
    "no conflict": ("a = 1\n", "a = 1\nb = 2\n", "a = 1\n"),
    "no last line end": ("a = 1\n", "a = 1\nb = 2\n", "a = 1\nc = 3"),
    "a docstring": (
        'def f():\n    """A."""\n',
        'def f():\n    """A.\n\n    B.\n    """\n',
        'def f():\n    """A.\n\n    C.\n    """\n',
    ),
    "two statements on a line": ("a = 1\n", "a = 1\nb = 2\n", "a = 1\nc = 3; d = 4\n"),
    "two overloads with two ends": (
        "x = 1\n",
        "x = 1\n@overload\ndef f(a): 0\ndef f(b): 1\n",
        "x = 1\n@overload\ndef f(c): 0\ndef f(d): 1\n",
    ),
    "the main block": ("x = 1\n", "x = 1\nif __name__ == '__main__':\n    f()\n", "x = 1\ndef g(): 0\n"),
    "an f-string": ("x = f'{a}'\n", "x = f'{[a, b]}'\n", "x = f'{[a, c]}'\n"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_in_doubt_it_stays_a_conflict(name: str) -> None:
    base, ours, theirs = DOUBTS[name]
    assert merged(base, ours, theirs) is None
    assert merged(base, theirs, ours) is None


def test_a_comment_without_a_place_is_not_lost() -> None:
    assert merged("x = [\n    1,\n]\n", "x = [\n    1,\n    2,\n]\n", "x = [\n    1,\n    3,\n    # the end\n]\n") is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfx = [\n%s]\n",
        b"# coding: latin-1\nx = [\n%s]\n",
        b"x = [\n%s]\n\0\n",
        b"x = [\n%s]\n\f\n",
        b"x = '\xff'\ny = [\n%s]\n",
        b"x = [\n%s]\n" + b"<" * 200 + b"\n",
        b"x = [\n%s]\n" + b"(" * 5000 + b"\n",
        b"x = [\n%s]\n" + b"y = 1\n" * 100_000,
    ],
)
def test_odd_files_stay_in_conflict(data: bytes) -> None:
    assert resolve("a.py", data % b"1,\n", data % b"1,\n2,\n", data % b"1,\n3,\n") is None


def test_other_kinds_of_files_stay_in_conflict() -> None:
    assert merged("a\n", "a\nb\n", "a\nc\n", "a.txt") is None


def test_evidence_names_lines_of_the_result() -> None:
    gap = "".join(f"v{number} = {number}\n" for number in range(9))
    result = merged(
        f"import a\n{gap}x = {{\n    1,\n}}\n",
        f"import a\nimport b\n{gap}x = {{\n    1,\n    2,\n}}\n",
        f"import a\nimport c\n{gap}x = {{\n    1,\n    3,\n}}\n",
    )
    assert result is not None
    assert (
        result.evidence
        == "both sides add to the import block at line 3: import b; import c; both sides add to the set at line 16: 2; 3"
    )
    ast.parse(result.data)


INCLUDES = "#pragma once\n#include <a.h>\n#include <d.h>\n\nint x;\n"


def included(*names: str) -> str:
    return "#pragma once\n" + "".join(f"#include <{name}.h>\n" for name in names) + "\nint x;\n"


def test_includes() -> None:
    check(
        INCLUDES,
        included("a", "c", "d"),
        included("a", "b", "d"),
        included("a", "b", "c", "d"),
        "both sides add to the include block at line 3: c.h; b.h",
        "a.cuh",
    )
    check(included("d", "a"), included("d", "a", "c"), included("d", "a", "b"), included("d", "a", "c", "b"), path="a.cu")
    check(included("d"), included("d", "c", "e"), included("d", "b", "c", "a"), included("d", "b", "c", "e", "a"), path="a.cu")


def test_definitions_among_includes() -> None:
    check(
        "#include <a>\nint x;\n",
        "#include <a>\nusing A = int;\nint x;\n",
        "#include <a>\n// of ours\nusing B = long;\nint x;\n",
        "#include <a>\nusing A = int;\n// of ours\nusing B = long;\nint x;\n",
        "both sides add to the definitions at line 2: A; B",
        "a.cpp",
    )


def test_an_include_that_the_file_has_elsewhere_is_not_added() -> None:
    far = "#include <a>\nint x;\n#include <b>\n"
    theirs = "#include <a>\n#include <b>\nint x;\n#include <b>\n"
    assert merged(far, "#include <a>\n#include <c>\nint x;\n#include <b>\n", theirs, "a.cuh") is None


CPP_DOUBTS = {
    "code": ("int a;\n", "int a;\nint b;\n", "int a;\nint c;\n"),
    "a macro twice": ("#include <a>\n", "#include <a>\n#define X 1\n", "#include <a>\n#define X 2\n"),
    "a macro and an include": ("#include <a>\n", "#include <a>\n#define X 1\n", "#include <a>\n#include <b>\n"),
    "a macro that the other uses": ("#include <a>\n", "#include <a>\n#define X 1\n", "#include <a>\n#define Y X\n"),
    "a macro of many lines": ("#include <a>\n", "#include <a>\n#define X 1\n", "#include <a>\n#define Y \\\n  2\n"),
    "a file in both forms": (
        "#include <a>\n",
        '#include <a>\n#include "b.h"\n',
        "#include <a>\n#include <b.h>\n#include <c>\n",
    ),
    "a table": ("#include <a>\n", '#include <a>\n#include "x.inc"\n', '#include <a>\n#include "y.inc"\n'),
    "in a comment": ("/*\n#include <a>\n*/\n", "/*\n#include <a>\n#include <b>\n*/\n", "/*\n#include <a>\n#include <c>\n*/\n"),
    "in a string": (
        'auto x = R"(\n#include <a>\n)";\n',
        'auto x = R"(\n#include <a>\n#include <b>\n)";\n',
        'auto x = R"(\n#include <a>\n#include <c>\n)";\n',
    ),
    "a condition": ("#include <a>\n", "#include <a>\n#ifdef X\n#include <b>\n#endif\n", "#include <a>\n#include <c>\n"),
    "a removal": ("#include <a>\n#include <b>\n", "#include <a>\n", "#include <a>\n#include <b>\n#include <c>\n"),
    "a number of two macros": ("#define A 0\n", "#define A 0\n#define B 1\n", "#define A 0\n#define C 1\n"),
    "a number of two macros, written otherwise": (
        "#define A 0\n",
        "#define A 0\n#define B (1u << 2)\n",
        "#define A 0\n#define C 0x4\n",
    ),
    "the next number of two macros": ("#define A 0\n", "#define A 0\n#define B A + 1\n", "#define A 0\n#define C A + 1\n"),
    "a line that goes on": ("#define A \\\n", "#define A \\\n#include <b>\n", "#define A \\\n#include <c>\n"),
}


@pytest.mark.parametrize("name", CPP_DOUBTS)
def test_in_doubt_it_stays_a_conflict_in_cpp(name: str) -> None:
    base, ours, theirs = CPP_DOUBTS[name]
    assert merged(base, ours, theirs, "a.cuh") is None
    assert merged(base, theirs, ours, "a.cuh") is None


def test_another_comment_is_more_than_layout() -> None:
    assert layout.same("a.py", b"x = f(1, 2)  # see ab\n", b"x = f(\n    1,\n    2,\n)  # see ab\n")
    assert not layout.same("a.py", b"x = f(1, 2)  # see ab\n", b"x = f(\n    1,\n    2,\n)  # see a b\n")
