# SPDX-License-Identifier: Apache-2.0
"""Combine the images of several platforms into one index, unchanged."""

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
    """Write a new layout with an index of the images in some layouts. The digest does not depend on their order.

    Raises:
        StackError: an image cannot be read, is an index itself, or has the same platform as another one.

    """
    images = sorted((image.read(item) for item in sources), key=lambda item: item.platforms[0].name)
    names = [item.platforms[0].name for item in images]
    for item in images:
        if item.platforms[0].digest != item.digest:
            raise StackError(f"{item.reference.shown} is an index already", "name it alone")
        if names.count(item.platforms[0].name) > 1:
            raise StackError(f"two of the images are for {item.platforms[0].name}", "name one for each platform")
    for item in images:
        for digest in layout.blobs(Path(item.reference.place)):
            bring(Path(item.reference.place), folder, digest)
    index = layout.encode({"schemaVersion": 2, "mediaType": layout.INDEX, "manifests": [_entry(item) for item in images]})
    layout.finish(folder, {TAG: layout.put(folder, index, layout.INDEX)})
    return Reference(str(folder), TAG, layout=True)


def _entry(item: Image) -> layout.Descriptor:
    system, _, architecture = item.platforms[0].name.partition("/")
    return {**item.descriptor, "platform": {"os": system, "architecture": architecture}}


def bring(source: Path, folder: Path, digest: str) -> None:
    """Bring a blob of a layout into another one, as a hard link where the file system allows it."""
    file, target = layout.place(source, digest), layout.place(folder, digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        try:
            os.link(file, target)
        except OSError:
            shutil.copyfile(file, target)
