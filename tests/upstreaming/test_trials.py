# SPDX-License-Identifier: Apache-2.0
"""Proofs on many trees in one folder."""

import os
import sys
from pathlib import Path

import pytest

from stack.model.ids import TreeId
from stack.model.series import PatchRef
from stack.proof import trees
from stack.proof.series_proofs import ProofState
from stack.store.objects import Entry, Objects
from stack.upstreaming.trials import Trials, torch_tree

from .fork import Change, fork

PROOF = """
import up

def test_half():
    assert up.HALF == 2
"""
REF = PatchRef("one", "up", "up/half.patch")


def test_a_source_that_changed_within_a_second_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fork(
        tmp_path, {"up.py": b"HALF = 1\n"}, [Change("one", "half", {"up.py": b"HALF = 2\n"}, ("test_half",))], {}, PROOF
    )
    move = trees.move

    def at_one_time(objects: Objects, tree: TreeId, target: Path) -> None:
        move(objects, tree, target)
        os.utime(target / "up.py", (1_700_000_000, 1_700_000_000))

    monkeypatch.setattr(trees, "move", at_one_time)
    with made.stores() as stores:
        bare = stores.obtain("up")
        objects = stores.objects("up")
        known = objects.entry(bare.tree, "up.py")
        assert known is not None
        patched = objects.replaced(bare.tree, {"up.py": Entry(known.mode, objects.write_blob(b"HALF = 2\n"))})
        with Trials(stores, "up", torch_tree(stores, bare), Path(sys.executable)) as trials:
            assert [trials.result(REF, tree).state for tree in (bare.tree, patched)] == [ProofState.FAILS, ProofState.PASSES]
            assert not trials.proves(PatchRef("one", "up", "up/other.patch"))
