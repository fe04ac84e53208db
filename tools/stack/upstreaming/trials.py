# SPDX-License-Identifier: Apache-2.0
"""The tests that prove patches, run on many trees of one upstream that differ little."""

import contextlib
import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from stack.carry.bases import Stores
from stack.model.ids import TreeId
from stack.model.series import PatchRef
from stack.proof import prove, proving, trees
from stack.proof.prove import Proof
from stack.proof.proving import Result, State
from stack.store import cache as places
from stack.store.sources import SourceTree


class Trials:
    """Runs tests in one folder, which goes from tree to tree: a folder for each would take gigabytes. A context manager."""

    def __init__(
        self,
        stores: Stores,
        upstream: str,
        torch: SourceTree,
        python: Path | None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._stores = stores
        self._objects = stores.objects(upstream)
        self._torch = torch
        self._python = python
        self._tell = tell
        self._proofs = [proof for proof in proving.proofs(stores, proving.provable(stores)) if proof.upstream == upstream]
        self._place = stores.place.cache / "trees" / f"proposals-{upstream}"
        self._tree: TreeId | None = None
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._exit.enter_context(places.lock(self._place))
        shutil.rmtree(self._place, ignore_errors=True)  # of a run that was killed
        self._exit.callback(shutil.rmtree, self._place, ignore_errors=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._exit.close()

    @property
    def _folder(self) -> Path:
        return self._place / "tree"  # git's index of it stands beside it

    def proves(self, ref: PatchRef) -> bool:
        """Whether there are tests for a patch."""
        return any(ref in proof.refs() for proof in self._proofs)

    @functools.cache  # noqa: B019  (it is short-lived)
    def result(self, ref: PatchRef, tree: TreeId) -> Result:
        """How the tests of a patch end on a tree, in all modules that have any: the worst.

        Raises:
            StackError: the environment cannot be made, or the tree not be written.

        """
        found = proving.worst(self._run(proof, ref, tree) for proof in self._proofs if ref in proof.refs())
        return found or Result(State.NOT_RUN, "no test proves it")

    def _run(self, proof: Proof, ref: PatchRef, tree: TreeId) -> Result:
        python = self._python or proving.interpreter_for(self._stores, proof, self._torch, self._tell)
        self._tell(f"{proof.path.name} for {ref.path}")
        self._move(tree)
        tests: Sequence[str] = proof.proves[ref.file]
        return proving.result(prove.run_in(proof, python, self._folder, tests), tests)

    def _move(self, tree: TreeId) -> None:
        """Give the folder the files of a tree. Python tells a changed source by its second and size, which may be the same."""
        if self._tree is not None:
            for path, _, _ in self._objects.difference(self._tree, tree):
                source = self._folder / path
                for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
                    compiled.unlink()
        if self._tree != tree:
            trees.move(self._objects, tree, self._folder)
            self._tree = tree


def torch_tree(stores: Stores, target: SourceTree) -> SourceTree:
    """The tree that names the torch for tests of `target`: itself, or the pinned one of the upstream that does.

    Raises:
        StackError: it cannot be had.

    """
    holder = proving.holder(stores)
    return target if target.upstream == holder else stores.obtain(holder)
