# SPDX-License-Identifier: Apache-2.0
"""The images of several platforms as one index, each as it is."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from stack.base.errors import StackError
from stack.images import image, layout
from stack.images.image import Image
from stack.images.reference import Reference

TAG = "index"


def combine(sources: Sequence[Reference], folder: Path) -> Reference:
    """A new layout with an index of the images in layouts; the same images give the same digest, in whatever order they are named.

    Raises:
        StackError: one of them cannot be read, is an index itself, or is of a platform that another one is of.

    """
    found = sorted((image.read(one) for one in sources), key=lambda one: one.platforms[0].name)
    names = [one.platforms[0].name for one in found]
    for one in found:
        if one.platforms[0].digest != one.digest:
            raise StackError(f"{one.reference.shown} is an index already", "name it alone")
        if names.count(one.platforms[0].name) > 1:
            raise StackError(f"two of the images are of {one.platforms[0].name}", "name one for each platform")
    for one in found:
        _bring(Path(one.reference.place), folder)
    index = layout.encode({"schemaVersion": 2, "mediaType": layout.INDEX, "manifests": [_entry(one) for one in found]})
    layout.finish(folder, {TAG: layout.put(folder, index, layout.INDEX)})
    return Reference(str(folder), TAG, layout=True)


def _entry(one: Image) -> layout.Descriptor:
    system, _, architecture = one.platforms[0].name.partition("/")
    return {**one.descriptor, "platform": {"os": system, "architecture": architecture}}


def _bring(source: Path, folder: Path) -> None:
    """Every blob, without taking its room twice where the file system allows that."""
    (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    for digest in layout.blobs(source):
        file, target = layout.place(source, digest), layout.place(folder, digest)
        if not target.exists():
            try:
                os.link(file, target)
            except OSError:
                shutil.copyfile(file, target)
