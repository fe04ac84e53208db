# SPDX-License-Identifier: Apache-2.0
"""Outcomes that are kept in the cache: what another program wrote there is as if nothing were kept."""

import json

import pytest

from stack.carry import tried
from stack.carry.rebase import Request, rebase
from stack.store import results

from .world import World


@pytest.mark.parametrize("time", ["x", 1e400, float("nan"), None, [], {}])
def test_a_time_that_is_none_is_no_outcome(world: World, time: object) -> None:
    with world.stores() as stores:
        tried.keep(world.cache, rebase(stores, Request("gamma", "v2.1")))
        stack = stores.stack
    [kept] = [one for one in tried.last(world.cache, stack) if one.upstream == "gamma"]
    assert kept.onto == "v2.1"
    [file] = (world.cache / results.FOLDER / "tried").glob("*.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"time": time}))
    assert tried.last(world.cache, stack) == ()
