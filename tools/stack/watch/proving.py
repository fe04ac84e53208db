# SPDX-License-Identifier: Apache-2.0
"""Run the proofs of the stack on a release, and say how each one ended, in words that do not change from night to night."""

from collections.abc import Iterator
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model import stack as stacks
from stack.proof import series_proofs
from stack.proof.runner import Runner
from stack.proof.series_proofs import PatchProof, ProofRequest, ProofState


def sentences(root: Path, lane: str | None, place: Place, python: Path | None) -> tuple[str, ...]:
    """Prove the stack in a folder at its own pins; return a sentence for each patch with a proof.

    A machine that cannot run the proofs gives one sentence that says why.

    Args:
        root: the stack's folder.
        lane: the lane, None for what stands in no lane.
        place: where sources and results are stored.
        python: an interpreter to use in place of an environment in the cache.

    """
    try:
        with Stores(stacks.load(root, lane), place) as stores, Runner(stores) as runner:
            return tuple(_sentences(stores, runner, python))
    except StackError as failed:
        return (f"not run: {failed.problem}",)


def _sentences(stores: Stores, runner: Runner, python: Path | None) -> Iterator[str]:
    for proof in series_proofs.verdicts(runner, ProofRequest(python=python), stores.tell):
        yield f"{proof.ref.path.removesuffix('.patch')}: {_ended(proof)}"


def _ended(proof: PatchProof) -> str:
    if proof.sound:
        return "passes with the patch, fails without it"
    if proof.with_patch.state is ProofState.PASSES and proof.without.state is ProofState.PASSES:
        return "passes with and without the patch, so it proves nothing"
    return f"with the patch: {proof.with_patch.state.value}; without it: {proof.without.state.value}"
