# SPDX-License-Identifier: Apache-2.0
"""Random additions are united, random changes never come out wrong, and the proof refuses what a broken union would make."""

import ast
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from stack.carry.structure import cpp, resolve
from stack.carry.structure.proof import prove


@dataclass(frozen=True)
class Construct:
    """Something that has elements: how one of them looks, how the whole looks, and its elements in a tree."""

    element: Callable[[str, int], str]
    start: str
    end: str
    read: Callable[[ast.Module], list[str]]


def _of_value(tree: ast.Module) -> list[str]:
    value = next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("x", "__all__")
    )
    if isinstance(value, ast.Dict):
        return [f"{ast.unparse(key)}: {ast.unparse(one)}" for key, one in zip(value.keys, value.values, strict=True) if key]
    if isinstance(value, ast.Call):
        return [ast.unparse(one) for one in [*value.args, *value.keywords]]
    assert isinstance(value, ast.List | ast.Set)
    return [ast.unparse(one) for one in value.elts]


def _of_body(tree: ast.Module) -> list[str]:
    return [ast.unparse(one) for one in tree.body[1:-1]]


def _of_class(tree: ast.Module) -> list[str]:
    node = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    return [ast.unparse(one) for one in node.body]


def _of_import(tree: ast.Module) -> list[str]:
    node = next(node for node in tree.body if isinstance(node, ast.ImportFrom))
    return [ast.unparse(one) for one in node.names]


def _of_parameters(tree: ast.Module) -> list[str]:
    node = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    arguments = node.args
    return [
        f"{one.arg}={default and ast.unparse(default)}"
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]


def _of_decorators(tree: ast.Module) -> list[str]:
    node = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    return [ast.unparse(one) for one in node.decorator_list]


CONSTRUCTS = {
    "list": Construct(lambda name, value: f"    '{name} {value}',\n", "__all__ = [\n", "]\n", _of_value),
    "set": Construct(lambda name, value: f"    {name},  # {value}\n", "x = {\n", "}\n", _of_value),
    "dict": Construct(lambda name, value: f"    '{name}': {value},\n", "x = {\n", "}\n", _of_value),
    "long dict": Construct(
        lambda name, value: f"    # {name}\n    '{name}': (\n        {value}\n    ),\n", "x = {\n", "}\n", _of_value
    ),
    "call": Construct(lambda name, value: f"    {name}={value},\n", "x = f(\n    0,\n", ")\n", _of_value),
    "import": Construct(lambda name, value: f"    {name},\n", "from m import (\n", ")\n", _of_import),
    "imports": Construct(lambda name, value: f"import {name}\n", "", "", _of_body),
    "parameters": Construct(lambda name, value: f"    {name}={value},\n", "def f(\n    *,\n", "):\n    pass\n", _of_parameters),
    "decorators": Construct(lambda name, value: f"@{name}\n", "", "def f():\n    pass\n", _of_decorators),
    "assignments": Construct(lambda name, value: f"{name} = {value}\n", "", "", _of_body),
    "functions": Construct(lambda name, value: f"@d\ndef {name}():\n    a = 1\n    return {value}\n\n\n", "", "", _of_body),
    "methods": Construct(lambda name, value: f"    def {name}(self):\n        return {value}\n\n", "class A:\n", "", _of_class),
    "enum": Construct(lambda name, value: f"    {name.upper()} = '{name}{value}'\n", "class A(Enum):\n", "", _of_class),
}

Elements = list[tuple[str, int]]


def text(construct: Construct, elements: Elements) -> bytes:
    inside = "".join(construct.element(name, value) for name, value in elements)
    return f"first = 0\n{construct.start}{inside}{construct.end}last = 0\n".encode()


def read(construct: Construct, data: bytes) -> list[str]:
    return construct.read(ast.parse(data))


def names(chance: random.Random, count: int) -> Elements:
    chosen = chance.sample(range(1000), count)
    return [(f"n{number}", number) for number in chosen]


@pytest.mark.parametrize("kind", CONSTRUCTS)
@pytest.mark.parametrize("seed", range(6))
def test_additions_at_one_place_are_united(kind: str, seed: int) -> None:
    construct, chance = CONSTRUCTS[kind], random.Random(seed)
    fresh = names(chance, 12)
    # The last of the base is never the place: there a blank line more or less is a conflict of its own.
    base, mine, new = fresh[:5], fresh[5 : 6 + chance.randrange(3)], fresh[8 : 9 + chance.randrange(4)]
    both = [] if kind == "list" and seed % 2 else mine[:1] if seed % 3 == 0 else []
    if seed % 4 == 1:
        base.sort()
    place = chance.randrange(1, 5)
    at = [base[:place], base[place:]]
    three = [text(construct, at[0] + added + at[1]) for added in ([], mine, both + new)]
    result = resolve("a.py", *three)
    assert result is not None
    have, ours, theirs = (read(construct, data) for data in (result.data, three[1], three[2]))
    assert Counter(have) == Counter(ours) | Counter(theirs)
    assert [one for one in have if one in set(ours)] == ours
    assert [one for one in have if one in set(theirs)] == theirs
    assert result.data.count(b"#") == len({line for data in three for line in data.split(b"\n") if b"#" in line})
    mirrored = resolve("a.py", three[0], three[2], three[1])
    assert mirrored is not None
    assert Counter(read(construct, mirrored.data)) == Counter(have)
    assert prove(three[0], three[1], three[2], result.data)


def change(chance: random.Random, elements: Elements, fresh: Elements, place: int) -> Elements:
    """Add at a place; sometimes drop, edit or add anywhere, too."""
    found = [*elements[:place], *fresh[:2], *elements[place:]]
    for name in fresh[2 : 2 + chance.choice((0, 0, 1, 2))]:
        at = chance.randrange(len(found))
        what = chance.random()
        if what < 0.4:
            found.insert(at, name)
        elif what < 0.7:
            del found[at]
        else:
            found[at] = (found[at][0], found[at][1] + 1000)
    return found


def expected(base: Elements, ours: Elements, theirs: Elements) -> Counter[tuple[str, int]] | None:
    """The merge by name: what each became on the side that changed it; None where both changed it, differently."""
    found: Counter[tuple[str, int]] = Counter()
    three = [dict(side) for side in (base, ours, theirs)]
    for name in {**three[0], **three[1], **three[2]}:
        old, mine, new = (side.get(name) for side in three)
        if mine not in (old, new) and new != old:
            return None
        value = new if mine == old else mine
        if value is not None:
            found[name, value] += 1
    return found


@pytest.mark.parametrize("kind", ["list", "dict", "call", "parameters", "assignments", "functions", "methods", "enum"])
def test_changes_come_out_right_or_not_at_all(kind: str) -> None:
    construct, chance = CONSTRUCTS[kind], random.Random(7)
    resolved = 0
    for _ in range(30):
        fresh = names(chance, 20)
        base = fresh[:12]
        if chance.random() < 0.3:
            base.sort()
        place = chance.randrange(12)
        pools = [fresh[12:16], fresh[16:]]
        if chance.random() < 0.3:
            pools[1][chance.randrange(3)] = pools[0][chance.randrange(3)]
        sides = [change(chance, base, pool, place) for pool in pools]
        result = resolve("a.py", *[text(construct, side) for side in (base, *sides)])
        if result is None:
            continue
        resolved += 1
        want = expected(base, *sides)
        assert want is not None
        assert Counter(read(construct, result.data)) == Counter(read(construct, text(construct, list(want.elements()))))
    assert resolved > 5


def united(kind: str) -> tuple[Construct, Elements, Elements, Elements]:
    construct = CONSTRUCTS[kind]
    base = [("n1", 1), ("n2", 2), ("n3", 3)]
    mine, new = [("n4", 4), ("n5", 5)], [("n6", 6), ("n7", 7)]
    return construct, base, mine, new


def mutants(base: Elements, mine: Elements, new: Elements) -> Sequence[Elements]:
    right = base[:2] + mine + new + base[2:]
    found = [right[:at] + right[at + 1 :] for at in range(len(right))]
    found += [[*right[: at + 1], *right[at:]] for at in range(len(right))]
    found += [[*right[:at], (right[at][0], right[at][1] + 50), *right[at + 1 :]] for at in range(len(right))]
    found += [[*right[:at], right[at + 1], right[at], *right[at + 2 :]] for at in (0, 1, 2, 4, 5)]
    found += [[*right[:2], ("n9", 9), *right[2:]], [*right, ("n9", 9)]]
    return found


@pytest.mark.parametrize("kind", [kind for kind in CONSTRUCTS if kind not in ("set", "import", "imports", "decorators")])
def test_the_proof_refuses_broken_unions(kind: str) -> None:
    construct, base, mine, new = united(kind)
    three = [text(construct, base[:2] + added + base[2:]) for added in ([], mine, new)]
    right = text(construct, base[:2] + mine + new + base[2:])
    assert prove(three[0], three[1], three[2], right)
    # Between the two sides' additions there is no order to keep.
    assert prove(three[0], three[1], three[2], text(construct, base[:2] + new + mine + base[2:])) or kind == "parameters"
    for broken in mutants(base, mine, new):
        assert not prove(three[0], three[1], three[2], text(construct, broken)), broken


def test_the_proof_refuses_changes_elsewhere() -> None:
    construct, base, mine, new = united("dict")
    three = [text(construct, base + added) for added in ([], mine, new)]
    right = text(construct, base + mine + new)
    for broken in (
        right.replace(b"last = 0", b"last = 1"),
        right.replace(b"last = 0\n", b""),
        right.replace(b"first = 0", b"first = 0\nother = 0"),
        right.replace(b"x = {", b"x: dict = {"),
        right.replace(b"'n4': 4", b"'n4': (4, 6)"),
        right.replace(b"'n4': 4", b"'n4': 6").replace(b"'n6': 6", b"'n6': 4"),
        right + b"}",
        three[1],
        three[2],
        three[0],
    ):
        assert not prove(three[0], three[1], three[2], broken), broken


def test_the_proof_counts_comments() -> None:
    three = [b"x = {\n    1,  # a\n}\n", b"x = {\n    1,  # a\n    2,  # b\n}\n", b"x = {\n    1,  # a\n    3,  # c\n}\n"]
    right = b"x = {\n    1,  # a\n    2,  # b\n    3,  # c\n}\n"
    assert prove(three[0], three[1], three[2], right)
    for mark in (b"  # a", b"  # b", b"  # c"):
        assert not prove(three[0], three[1], three[2], right.replace(mark, b""))
        assert not prove(three[0], three[1], three[2], right.replace(mark, mark + mark.strip()))
        assert not prove(three[0], three[1], three[2], right + mark.strip() + b"\n")


def test_the_proof_knows_names_from_around() -> None:
    three = [b"import a\n", b"import a\nimport b\n", b"import a\nimport c\n"]
    right = b"import a\nimport b\nimport c\n"
    assert prove(three[0], three[1], three[2], right)
    assert not prove(three[0], three[1], three[2], right, {"c"})
    assert prove(three[0], three[1], three[2], right, {"d"})


def test_the_proof_of_includes_refuses_broken_unions() -> None:
    lines = [b"#include <%s>\n" % name for name in (b"a", b"b", b"c", b"d")]
    base, ours, theirs = lines[0] + lines[3], lines[0] + lines[1] + lines[3], lines[0] + lines[2] + lines[3]
    right = b"".join(lines)
    assert cpp.prove(base, ours, theirs, right)
    assert cpp.prove(base, ours, theirs, lines[0] + lines[2] + lines[1] + lines[3])
    for broken in (ours, theirs, base, right + lines[1], right + b"#include <e>\n", b"".join(lines[::-1]), right + b"int x;\n"):
        assert not cpp.prove(base, ours, theirs, broken), broken
    noted = ours.replace(b"<b>", b"<b>  // why")
    assert not cpp.prove(base, noted, theirs, right)
