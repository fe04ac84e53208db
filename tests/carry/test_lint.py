# SPDX-License-Identifier: Apache-2.0
"""Every finding is seen: each case spoils one thing of a stack that is in order."""

from collections.abc import Callable

import pytest

from stack.base.errors import StackError
from stack.carry import lint

from .world import PATCHES, World

HOOK, FLAG = "stacks/one/gamma/hook-main.patch", "stacks/one/gamma/tool-flag.patch"


def found(world: World) -> list[tuple[str, str]]:
    with world.stores() as stores:
        return [(one.place, f"{one.problem}: {one.remedy}".removesuffix(": ")) for one in lint.lint(stores)]


def policy(world: World, rules: str) -> None:
    """Give the stack rules of its own."""
    (world.root / "stacks/stack.toml").write_text(f"{world.read('stacks/stack.toml')}\n[lint]\n{rules}\n")


def _unsign(world: World) -> None:
    world.edit(HOOK, "\nSigned-off-by: A Person <a@person>\n", "")


def _lengthen(world: World, length: int) -> None:
    """Give one patch a subject of that many characters."""
    world.edit(HOOK, "Subject: [PATCH] Hook main\n", f"Subject: [PATCH] {'x' * length}\n")


def _proved(world: World) -> None:
    (world.root / "test_one.py").write_text("")
    world.edit("stacks/one/series.toml", 'title = "One"', 'title = "One"\nproves = ["test_one.py"]')


def _drop_all_patches(world: World) -> None:
    for file in (world.root / "stacks/two").rglob("*.patch"):
        file.unlink()
    text = world.read("stacks/two/series.toml")
    (world.root / "stacks/two/series.toml").write_text(text.partition("[[patch]]")[0])


FINDINGS: dict[str, tuple[Callable[[World], object], list[tuple[str, str]]]] = {
    "nothing": (lambda world: None, []),
    "a context line": (
        lambda world: world.edit(HOOK, " main 9\n", " main nine\n"),
        [(HOOK, "does not apply: gamma/main.py:7: the lines that it changes are not there")],
    ),
    "the ones after a misfit are tried without it": (
        lambda world: world.edit("stacks/two/alpha/open-header.patch", "-header 5\n", "-header five\n"),
        [
            (
                "stacks/two/alpha/open-header.patch",
                "does not apply: 3rd/beta/include/b.h:2: the lines that it changes are not there",
            ),
            ("beta", "stands on a tree whose own patches do not apply"),
        ],
    ),
    "moved lines": (
        lambda world: world.edit(HOOK, "@@ -7,7 +7,7 @@", "@@ -8,7 +8,7 @@"),
        [
            (
                HOOK,
                "is not byte-stable: line 14 is not what `git format-patch` would write: `stack checkout` and `stack refresh` mend it",
            )
        ],
    ),
    "a signature": (
        lambda world: (world.root / HOOK).write_text(world.read(HOOK) + "-- \n2.39\n\n"),
        [
            (
                HOOK,
                "is not byte-stable: line 23 is not what `git format-patch` would write: `stack checkout` and `stack refresh` mend it",
            )
        ],
    ),
    "outside of the tree": (
        lambda world: (world.root / FLAG).write_text(world.read(FLAG).replace("gamma/tool.py", "../tool.py")),
        [
            (
                FLAG,
                "one/gamma/tool-flag.patch changes '../tool.py', which is outside of the tree: refuse this patch",
            )
        ],
    ),
    "no sign-off": (
        lambda world: (_unsign(world), policy(world, 'signed-off-by = "required"')),
        [(HOOK, "has no Signed-off-by: `stack refresh gamma --signoff` adds yours")],
    ),
    "no sign-off, where none is required": (_unsign, []),
    "a long subject": (
        lambda world: (_lengthen(world, 21), policy(world, "subject-length = 20")),
        [
            (
                HOOK,
                "has a subject of more than 20 characters: shorten it in a working tree (`stack checkout gamma DIR`),"
                " or change subject-length in stacks/stack.toml",
            ),
            (
                FLAG,
                "has a subject of more than 20 characters: shorten it in a working tree (`stack checkout gamma DIR`),"
                " or change subject-length in stacks/stack.toml",
            ),
        ],
    ),
    "a subject as long as it may be": (lambda world: (_lengthen(world, 28), policy(world, "subject-length = 28")), []),
    "no proof": (
        lambda world: (_proved(world), policy(world, 'proof = "required"')),
        [("stacks/two/series.toml", "names no proof: name a test of its patches in `proves` (docs/proofs.md)")],
    ),
    "a proof": (
        lambda world: world.edit("stacks/two/series.toml", 'title = "Two"', 'title = "Two"\nproves = ["tests/none.py"]'),
        [("stacks/two/series.toml", "proves names tests/none.py, which is not there")],
    ),
    "no patch": (
        _drop_all_patches,
        [
            (
                "stacks/two/series.toml",
                "has no patch, and its state is draft: add one (`stack checkout`, commit with the trailer `Stack-Series: two`,"
                " `stack refresh`), take the series out of stacks/stack.toml and remove its folder, or say in `state` what became of it",
            )
        ],
    ),
    "the extras": (
        lambda world: world.edit("pyproject.toml", "gamma-pkg==2.0", "gamma-pkg==2.1"),
        [("pyproject.toml", "pyproject.toml: serve has gamma-pkg==2.1, the pin is 2.0")],
    ),
    "a vendored folder": (
        lambda world: world.edit("pins.toml", "subtrees = { include = ", f'subtrees = {{ src = "{"1" * 40}", include = '),
        [("pins.toml", f"beta.subtrees.src is {'1' * 40}, the source has None")],
    ),
}


@pytest.mark.parametrize("case", FINDINGS)
def test_each_finding_is_seen(world: World, case: str) -> None:
    spoil, wanted = FINDINGS[case]
    spoil(world)
    assert found(world) == wanted


def test_all_of_them_at_once(world: World) -> None:
    cases = ("a context line", "the ones after a misfit are tried without it", "a proof", "the extras")
    for case in cases:
        FINDINGS[case][0](world)
    assert len(found(world)) == sum(len(FINDINGS[case][1]) for case in cases)


def test_pins_of_another_combination(world: World) -> None:
    """The sentence names both; the rest of the stack is checked all the same."""
    world.edit("pins.toml", f'commit  = "{world.commits["gamma v2.0"][:9]}"', f'commit  = "{world.commits["gamma v2.2"][:9]}"')
    pin = world.load().pins.get("gamma")
    assert pin.archive is not None
    for old, new in (('tag     = "v2.0"', 'tag     = "v2.2"'), ('version = "2.0"', 'version = "2.2"')):
        world.edit("pins.toml", old, new)
    world.edit("pins.toml", f', sha256 = "{pin.archive.sha256}"', "")
    world.edit("pins.toml", f'tree    = "{pin.tree}"\n', "")
    problems = dict(found(world))
    assert problems["pins.toml"] == "gamma v2.2 names alpha-pkg==1.3 (requirements/cuda.txt), the pin is 1.0"
    assert problems["pyproject.toml"].endswith("serve has gamma-pkg==2.0, the pin is 2.2")
    assert problems[HOOK].startswith("does not apply: gamma/main.py:7")


def test_equal_findings_are_one_group(world: World) -> None:
    policy(world, 'signed-off-by = "required"')
    for patch in PATCHES:
        text = world.read(f"stacks/{patch}").replace("\nSigned-off-by: A Person <a@person>\n", "")
        (world.root / "stacks" / patch).write_text(text)
    with world.stores() as stores:
        groups = lint.grouped(lint.lint(stores))
    assert [(group.problem, group.remedy, len(group.places)) for group in groups] == [
        ("has no Signed-off-by", "`stack refresh gamma --signoff` adds yours", 3),
        ("has no Signed-off-by", "`stack refresh alpha --signoff` adds yours", 2),
        ("has no Signed-off-by", "`stack refresh beta --signoff` adds yours", 1),
    ]
    assert groups[0].places == (HOOK, FLAG, "stacks/two/gamma/fix-limit.patch")
    assert lint.in_plural(groups[0].places, groups[0].problem) == "patches have no Signed-off-by"


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ('signed-off-by = "always"', "lint.signed-off-by is 'always': it has to be optional or required"),
        ("signed-off-by = true", "lint.signed-off-by is True: it has to be optional or required"),
        ("subject-length = 0", "lint.subject-length is 0: write a number of characters from 20 to 1000"),
        ('subject-length = "72"', "lint.subject-length"),
        ('signed-of-by = "required"', "lint.signed-of-by is an unknown key: did you mean 'signed-off-by'?"),
    ],
)
def test_a_rule_that_is_none(world: World, rules: str, problem: str) -> None:
    policy(world, rules)
    with pytest.raises(StackError) as refused:
        world.load()
    assert problem in str(refused.value)
