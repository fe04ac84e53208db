# SPDX-License-Identifier: Apache-2.0
"""Plans over several upstreams, from archives and from git, one of them vendored in another."""

import pytest

from stack.base.errors import StackError
from stack.model.pins import Source
from stack.upstreaming.plan import Wanted, plans
from stack.upstreaming.proposal import UpstreamPlan

from ..carry.world import World, template, world

__all__ = ["template", "world"]

ONTO = {"alpha": "v1.1", "gamma": "v2.1"}


def planned(world: World, source: Source = "archive", **wanted: object) -> dict[str, UpstreamPlan]:
    with world.stores(source) as stores:
        found = plans(stores, Wanted(onto=ONTO, tests=False, **wanted))  # type: ignore[arg-type]
    return {plan.upstream: plan for plan in found}


@pytest.mark.parametrize("source", ["archive", "git"])
def test_each_upstream_has_a_plan_of_its_own(world: World, source: Source) -> None:
    found = planned(world, source)
    assert list(found) == ["gamma", "alpha", "beta"]
    assert [row.patch.ref.path for row in found["gamma"].landed] == ["two/gamma/fix-limit.patch"]
    assert [one.slug for one in found["gamma"].proposals] == ["hook-main", "tool-flag"]
    assert [one.slug for one in found["beta"].proposals] == ["wide-load"]
    # What is vendored goes to its own upstream: under that one's own paths.
    assert b"diff --git a/include/b.h b/include/b.h" in found["beta"].proposals[0].parts[0].patch.diff


def test_only_git_knows_upstreams_own_commits(world: World) -> None:
    archive, remote = planned(world), planned(world, "git")
    assert not any(one.real for plan in archive.values() for one in plan.proposals)
    assert all(one.real and one.base == world.commits["alpha v1.1"] for one in remote["alpha"].proposals)
    # Of what is vendored, the store has no history to push.
    assert not any(one.real for one in remote["beta"].proposals)


def test_only_the_upstreams_that_are_named(world: World) -> None:
    assert list(planned(world, upstreams=("gamma", "alpha"))) == ["gamma", "alpha"]


def test_a_target_needs_an_upstream_that_is_planned(world: World) -> None:
    with pytest.raises(StackError, match="--onto names alpha, but none of its patches is planned"):
        planned(world, upstreams=("gamma",))
