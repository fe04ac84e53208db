# SPDX-License-Identifier: Apache-2.0
"""The example that is carried through every release: what a person resolved on the way belongs to its patches."""

from pathlib import Path

from stack.carry import apply, resolutions
from stack.model import stack

ROOT = Path(__file__).parents[2] / "examples/fork-v0.17.1"


def test_its_resolutions_are_of_its_patches() -> None:
    example = stack.load(ROOT)
    touched = {patch.ref.path: set(apply.touched(patch)) for patch in example.patches.values()}
    pin = example.pins.get("vllm")
    tag = pin.releases.version(pin.revision)
    assert tag is not None
    known = list(resolutions.standing(ROOT))
    assert known
    for one in known:
        assert one.path in touched[one.patch]
        assert one.patch.split("/")[1] == one.upstream
        rung = pin.releases.version(one.rung)
        assert rung is not None
        assert rung > tag
