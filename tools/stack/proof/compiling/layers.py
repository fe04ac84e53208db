# SPDX-License-Identifier: Apache-2.0
"""The trees of an upstream with its vendored upstreams: pristine, after each patch, and after all."""

from dataclasses import dataclass

from stack.carry import apply, links
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.model.pins import Pin
from stack.model.series import PatchRef
from stack.projects import UnitScript, known
from stack.store.objects import FOLDER, SUBMODULE, Entry, Objects


@dataclass(frozen=True, slots=True)
class Layer:
    """A patch: the whole tree before and after it, and the paths that it changes in that tree."""

    ref: PatchRef
    before: TreeId
    after: TreeId
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layers:
    """An upstream that is not vendored, with its own patches and those of its vendored upstreams, in order."""

    upstream: str
    base: TreeId
    patches: tuple[Layer, ...]

    @property
    def tip(self) -> TreeId:
        """The tree with all patches."""
        return self.patches[-1].after if self.patches else self.base


def of(stores: Stores, pin: Pin) -> Layers:
    """Return the layers of an upstream that is not vendored.

    Raises:
        StackError: A source is not available, or a patch does not apply.

    """
    objects = stores.objects(pin.upstream)
    base = stores.base(pin.upstream)
    layers = _own(objects, base, stores.stack.order(pin.upstream))
    tip = layers[-1].after if layers else objects.tree_of(base)
    for vendored in stores.stack.pins.vendored_in(pin.upstream):
        assert vendored.within is not None
        inner = _own(objects, stores.base(vendored.upstream), stores.stack.order(vendored.upstream))
        layers += [_grafted(objects, tip, vendored.within.path, layer) for layer in inner]
        tip = layers[-1].after if layers else tip
    return Layers(pin.upstream, objects.tree_of(base), tuple(layers))


def units(stores: Stores, layers: Layers) -> UnitScript | None:
    """Return the script that lists what the upstream's JIT would compile; None if no project plug-in knows a JIT of it.

    Raises:
        StackError: A project plug-in failed.

    """
    objects = stores.objects(layers.upstream)

    def read(path: str) -> bytes | None:
        entry = objects.entry(layers.base, path)
        return objects.read(entry.id) if entry is not None and entry.mode not in (FOLDER, SUBMODULE) else None

    return known.units(read)


def _own(objects: Objects, base: CommitId, patches: tuple[Patch, ...]) -> list[Layer]:
    commits = (base, *links.checked_chain(objects, base, patches))
    ids = [objects.tree_of(commit) for commit in commits]
    return [
        Layer(patch.ref, before, after, apply.touched(patch))
        for patch, before, after in zip(patches, ids[:-1], ids[1:], strict=True)
    ]


def _grafted(objects: Objects, holder: TreeId, path: str, layer: Layer) -> Layer:
    before, after = (objects.replaced(holder, {path: Entry(FOLDER, tree)}) for tree in (layer.before, layer.after))
    return Layer(layer.ref, before, after, tuple(f"{path}/{file}" for file in layer.paths))
