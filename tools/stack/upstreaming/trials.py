# SPDX-License-Identifier: Apache-2.0
"""Run the tests that prove patches on many trees of one upstream."""

import functools
from pathlib import Path
from types import TracebackType
from typing import Self

from stack.base.progress import Progress, silent
from stack.carry.upstream_stores import Stores
from stack.model.ids import TreeId
from stack.model.series import PatchRef
from stack.proof import brought_tests, series_proofs
from stack.proof.proof_module import Proof
from stack.proof.runner import Runner
from stack.proof.series_proofs import ProofState, Result
from stack.store.sources import SourceTree


class Trials:
    """A runner of tests on many trees; a context manager."""

    def __init__(
        self,
        stores: Stores,
        upstream: str,
        torch: SourceTree,
        python: Path | None,
        tell: Progress = silent,
    ) -> None:
        self._stores = stores
        self._torch = torch
        self._python = python
        self._tell = tell
        names = series_proofs.provable(stores)
        proofs = series_proofs.proofs(stores, names) if names else ()  # a plan needs none, and says so of each patch
        self._proofs = [proof for proof in proofs if proof.upstream == upstream]
        self._runner = Runner(stores)

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._runner.__exit__(kind, value, trace)

    def proves(self, ref: PatchRef) -> bool:
        """Return whether there are tests for a patch."""
        return any(ref in proof.refs() for proof in self._proofs)

    @functools.cache  # noqa: B019 (the object is short-lived)
    def result(self, ref: PatchRef, tree: TreeId) -> Result:
        """Run all tests of a patch on a tree, and return the worst result.

        Raises:
            StackError: the environment cannot be made, or the tree cannot be written.

        """
        worst = series_proofs.worst(self._run(proof, ref, tree) for proof in self._proofs if ref in proof.refs())
        return worst or Result(ProofState.NOT_RUN, "no test proves it")

    def _run(self, proof: Proof, ref: PatchRef, tree: TreeId) -> Result:
        python = self._python or series_proofs.interpreter_for(self._stores, proof, self._torch, self._tell)
        self._tell(f"{proof.path.name} for {ref.path}")
        tests = proof.proves[ref.file]
        tree = brought_tests.with_tests(self._stores, {ref: tests}, tree)  # a bare release has none of them
        return series_proofs.result(self._runner.run(proof, python, tree, tests), tests)


def torch_tree(stores: Stores, target: SourceTree) -> SourceTree:
    """Return the tree that determines the version of torch: `target` itself, or the pinned tree of the upstream that does.

    Raises:
        StackError: the tree cannot be obtained.

    """
    holder = series_proofs.holder(stores)
    return target if target.upstream == holder else stores.obtain(holder)
