# SPDX-License-Identifier: Apache-2.0
"""Which stack a server is of: by labels, which anybody can write, and by its version."""

from typing import Any

import pytest

from stack.images import labels
from stack.model import digest
from stack.model.verdict import Pinned
from stack.owner.checking import served_stack

from ...carry.world import World, home, template, world

__all__ = ["home", "template", "world"]

DIGEST = "ab" * 32
IMAGE = f"sha256:{'cd' * 32}"


def test_an_images_labels(world: World) -> None:
    stack = world.load()
    found = served_stack.of_labels(labels.of(stack), IMAGE)
    assert found is not None
    assert found.digest == digest.of(stack)
    assert dict(found.pins) == {pin.upstream: Pinned(pin.commit, pin.tag) for pin in stack.pins}
    assert found.image == IMAGE


@pytest.mark.parametrize("value", [None, "", "ab", DIGEST.upper(), 7, f"{DIGEST}\n", [DIGEST]])
def test_labels_that_name_no_stack(value: Any) -> None:
    assert served_stack.of_labels({labels.STACK: value}) is None


@pytest.mark.parametrize(
    "pins",
    [
        "not JSON",
        "[]",
        '{"vllm": 3}',
        '{"vllm": {"commit": "zz"}}',
        '{"../x": {"commit": "5df63a720"}}',
        "[" * 5000,
        None,
    ],
)
def test_odd_pins_are_left_out(pins: Any) -> None:
    found = served_stack.of_labels({labels.STACK: DIGEST, labels.PINS: pins}, "latest")
    assert found is not None
    assert (dict(found.pins), found.image) == ({}, None)
    odd = '{"vllm": {"commit": "5df63a720", "tag": "v1 \\u001b[31m"}}'
    found = served_stack.of_labels({labels.STACK: DIGEST, labels.PINS: odd})
    assert found is not None
    assert found.pins["vllm"] == Pinned("5df63a720", None)


def test_a_version_names_the_stack_at_hand(world: World) -> None:
    stack = world.load()
    own = digest.of(stack)
    found = served_stack.of_stack(stack, f"0.32.0+sm121.g{own[:8]}")
    assert found is not None
    assert found.digest == own
    assert served_stack.of_stack(stack, "0.32.0+sm121.g01234567") is None
    assert served_stack.of_stack(stack, "0.32.0") is None
    assert served_stack.of_stack(stack, None) is None
