# SPDX-License-Identifier: Apache-2.0
"""A night shows the guards that need a person beside the patches."""

from stack.carry.guards import recording
from stack.carry.guards.recording import Wanted
from stack.carry.outcome import Outcome
from stack.carry.rebase import Request, rebase
from stack.model.guards import Kind
from stack.watch import issue_text, observing
from stack.watch.night import Aim, Night, Trial, counted_rows

from ..carry.guards.conftest import LAYER, Plant, plant
from ..carry.world import home

__all__ = ["home", "plant"]


def test_a_broken_guard_needs_a_person(plant: Plant) -> None:
    with plant.stores() as stores:
        recording.added(stores, [Wanted("forward", Kind.PATCHED, "up.layer:Layer.forward", "we replace it")])
    broke = plant.commit("take a mask", {"up/layer.py": LAYER.replace("x, *, scale", "x, mask, *, scale")})
    plant.remote.tag("v1.1")
    with plant.stores() as stores:
        [row] = observing._rows(rebase(stores, Request("up", "v1.1")))
    assert (row.name, row.outcome, row.open) == ("guard forward", Outcome.DRIFTED, True)
    assert row.why[1] == f"{broke[:12]} 2023-11-14 take a mask"
    night = Night("up", (Trial("main", Aim.RELEASE, "v1.0", "v1.1", (row,)),))
    assert night.needs_person
    assert "**1 guard for a person**" in "\n".join(issue_text._table(night))
    assert counted_rows(["one/hook", "two/x", "guard forward"]) == "2 patches, 1 guard"
    assert "- `guard forward`: **drifted** at `v1.1`" in "\n".join(issue_text._open(night))
