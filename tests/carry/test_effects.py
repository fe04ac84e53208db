# SPDX-License-Identifier: Apache-2.0
"""Compare the effect that patches state with git's own trees; an untrue statement is found."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.carry import effects
from stack.model import digest, effect
from stack.model.effect import Content, Effect
from stack.model.ids import TreeId
from stack.store.objects import Objects

from .trees import PROPERTY, Scratch, changed, patch_of, trees
from .world import World


def resolved(objects: Objects, base: TreeId, content: Content | None) -> tuple[int, str] | None:
    """Mode and blob of a content; references to the base are looked up in its tree."""
    if content is None:
        return None
    if not content.id.startswith("base:"):
        assert content.mode is not None
        return content.mode, content.id
    entry = objects.entry(base, content.id.removeprefix("base:"))
    assert entry is not None
    return content.mode or entry.mode, entry.id


def of(scratch: Scratch, base: str, tip: str) -> Effect:
    return effect.along(
        [("", patch_of(raw, f"up/{number}.patch")) for number, raw in enumerate(scratch.format_patch(base, tip))]
    )


@PROPERTY
@given(st.data())
def test_the_effect_is_what_git_has_at_the_tip(scratch: Scratch, data: st.DataObject) -> None:
    chain = [data.draw(trees(), "base")]
    for number in range(data.draw(st.integers(1, 3))):
        chain.append(data.draw(changed(chain[-1]), f"after {number}"))
        assume(chain[-1] != chain[-2])
    items = [(tree, number - 1 if number else None, "Change it\n") for number, tree in enumerate(chain)]
    base, *commits = scratch.commits(*items, (chain[-1], 0, "All at once\n"))
    *_, tip, squashed = commits
    objects = scratch.objects
    wanted = {
        path: (now.mode, now.id) if now is not None else None
        for path, _, now in objects.difference(objects.tree_of(base), objects.tree_of(tip))
    }
    for end in (tip, squashed):
        stated = of(scratch, base, end)
        found = {path: resolved(objects, objects.tree_of(base), now) for path, now in stated.changed.items()}
        assert found == wanted
        for path, before in stated.before.items():
            entry = objects.entry(objects.tree_of(base), path)
            assert before is None or (before.mode in (None, entry and entry.mode))
            assert before is None or before.id in (f"base:{path}", entry and entry.id)


def test_the_patches_of_a_stack_state_what_they_result_in(world: World) -> None:
    own = digest.of(world.load())
    for source in ("archive", "git"):
        with world.stores("git" if source == "git" else "archive") as stores:
            effects.check(stores)
            assert digest.of(stores.stack) == own


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        ("one/gamma/hook-main.patch", "+hook", "+hack", "gamma: gamma/main.py"),
        ("one/gamma/tool-flag.patch", "+flag", "+flog", "gamma: gamma/tool.py"),
        ("one/alpha/core-switch.patch", "+extra", "+other", "alpha: alpha/extra.py"),
        ("two/beta/wide-load.patch", "+wide", "+hide", "alpha: 3rd/beta/include/b.h"),
    ],
)  # fmt: skip
def test_a_patch_that_keeps_its_ids_and_changes_its_lines_is_refused(
    world: World, path: str, old: str, new: str, said: str
) -> None:
    before = digest.of(world.load())
    world.edit(f"stacks/{path}", old, new)
    assert digest.of(world.load()) == before  # it believes the ids
    with world.stores() as stores, pytest.raises(StackError) as refused:
        effects.check(stores)
    assert re.match(
        rf"{said}: the patches, the last of them stacks/[a-z/-]+\.patch, state 100644 [0-9a-f]{{12}}, the sources give ",
        str(refused.value),
    )
    assert "\n" not in str(refused.value)


def test_only_what_is_asked_for_is_checked(world: World) -> None:
    world.edit("stacks/one/gamma/tool-flag.patch", "+flag", "+flog")
    with world.stores() as stores:
        effects.check(stores, ["alpha"])
        with pytest.raises(StackError):
            effects.check(stores, ["gamma"])
