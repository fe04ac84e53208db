# SPDX-License-Identifier: Apache-2.0
"""Which of our pull requests are known to be open at an upstream, however its address is written."""

import pytest

from stack.upstreaming import recorded

from ..carry.world import World, template, world

__all__ = ["template", "world"]

HOOK, FLAG = ("gamma/hook-main.patch", "gamma/tool-flag.patch")


def write(world: World, git: str, *pulls: tuple[str, str], state: str = "submitted") -> frozenset[str]:
    world.edit("pins.toml", f'"{world.load().pins.get("gamma").git}"', f'"{git}"')
    known = world.load().get("one")
    world.edit("stacks/one/series.toml", f'"{known.state}"', f'"{state}"\npull = "https://github.com/elsewhere/tool/pull/9"')
    for file, address in pulls:
        world.edit("stacks/one/series.toml", f'file = "{file}"', f'file = "{file}"\npull = ["{address}"]')
    return recorded.submitted(world.load(), "gamma")


@pytest.mark.parametrize("git", ["https://github.com/up/gamma.git", "https://GitHub.com/Up/Gamma/", "git@github.com:up/gamma"])
def test_however_the_address_is_written(world: World, git: str) -> None:
    own = "https://github.com/up/gamma/pull/1"
    assert write(world, git, (HOOK, own), (FLAG, "https://github.com/up/gamma-more/pull/2")) == {own}


def test_what_is_not_submitted_is_not_open(world: World) -> None:
    assert write(world, "https://github.com/up/gamma", (HOOK, "https://github.com/up/gamma/pull/1"), state="merged") == set()
