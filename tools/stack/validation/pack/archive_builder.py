# SPDX-License-Identifier: Apache-2.0
"""Build the archive for a GPU machine: the stack's wheels with their dependencies, its own files, and files without some patches."""

from collections.abc import Sequence
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model import digest
from stack.model.series import PatchRef
from stack.proof import proof_module
from stack.validation import kernels, laboratory
from stack.validation.pack import archive, bundled_wheels, contents, recipes
from stack.validation.pack.archive import Packed
from stack.validation.pack.contents import Files
from stack.validation.pack.targets import Target

UPSTREAMS = ("vllm", "flashinfer")
"""The upstreams whose wheels are packed."""
WITHOUT = "without"
"""The folder of the archive, by recipe, with the files that change when patches are left out."""


def make(stores: Stores, target: Target, wheels: Sequence[Path], out: Path) -> Packed:
    """Build the archive from the stack's wheels for the target.

    Raises:
        StackError: a wheel or a package cannot be fetched or read, or the archive would be too large.

    """

    more = bundled_wheels.wheels(target, stores.place.cache, stores.tell)
    files = contents.installed([*wheels, *more], target, lambda done, total: stores.tell("reading wheels", done, total))
    files |= contents.plugin() | contents.own(stores.stack) | lacking(stores, target.name)
    if target.emulates:
        files[contents.EMULATED] = kernels.library_for_sm90(stores).read_bytes()
    files[archive.SCRIPT] = (laboratory.folder(stores.stack.root) / "target/script.py").read_bytes()
    about = {
        "schema": 1,
        "gpu": target.name,
        "capability": target.capability,
        "python": list(target.python),
        "torch": list(target.torch),
        "cuda": target.cuda,
        "platform": target.platform,
        "stack": digest.of(stores.stack),
        "wheels": sorted(wheel.name for wheel in (*wheels, *more)),
    }
    return archive.write(out, files, about, lambda done, total: stores.tell("packing", done, total), target.limit)


def lacking(stores: Stores, gpu: str) -> Files:
    """Collect the changed files of each recipe of a GPU that leaves patches out. Patches that the stack does not have are ignored.

    Raises:
        StackError: a patch cannot be left out alone, changes other files than Python's, or shares a file with another one.

    """
    named = {path for recipe in recipes.of(gpu) for path in recipe.without}
    left_out = {ref.path: _left_out(stores, ref) for ref in stores.stack.patches if ref.path in named}
    files: Files = {}
    for recipe in recipes.of(gpu):
        for patch in recipe.without:
            for path, data in left_out.get(patch, {}).items():
                place = f"{WITHOUT}/{recipe.name}/{path}"
                if place in files:
                    raise StackError(
                        f"{patch} and another patch that {recipe.name} leaves out both change {path}", "leave one of them in"
                    )
                files[place] = data
    return files


def _left_out(stores: Stores, ref: PatchRef) -> Files:
    """Read the modules that a patch changes, as they are without it. A module that it adds stays: nothing imports it then."""
    objects = stores.objects(ref.upstream)
    whole, less = proof_module.tree(stores, ref.upstream), proof_module.tree(stores, ref.upstream, without=ref)
    changed = [(path, now) for path, _, now in objects.difference(whole, less) if path.startswith(f"{ref.upstream}/")]
    for path, _ in changed:
        if not path.endswith(".py"):
            raise StackError(
                f"{ref.path} cannot be left out on another machine: it changes {path}", "leave out only patches of Python files"
            )
    return {path: objects.read(now.id) for path, now in changed if now is not None}
