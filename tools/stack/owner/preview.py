# SPDX-License-Identifier: Apache-2.0
"""The engine's command of a start, with real values where they are known without a download."""

from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.images import reference
from stack.owner import caches, container, download, engine, hub_client, images
from stack.owner.engine import ENGINES, Engine
from stack.owner.missing import Start
from stack.owner.state import CONTAINER, Image, Model, Setup


@dataclass(frozen=True, slots=True)
class Preview:
    """The engine and its command. `unknown`: a sentence for each value that only the start itself finds out."""

    engine: Engine
    words: tuple[str, ...]
    unknown: tuple[str, ...]


def of(start: Start) -> Preview:
    """Return the command that a start would run.

    Raises:
        StackError: The image's name is none, or the model's folder cannot be mounted.

    """
    unknown: list[str] = []
    try:
        used = engine.found(engine.wanted(start.engine, start.known))
    except StackError as none:
        used = Engine(engine.wanted(start.engine, start.known) or ENGINES[0])
        unknown.append(f"{none}; the command is that of {used.name}")
    image = _image(start, used, unknown)
    folder, looks = _model(start, unknown)
    options = start.wanted
    setup = Setup(
        *(start.recipe.name, image, Model(str(folder)), options.port, options.opened, options.fallback),
        *(options.variables, options.extra, options.keep_free),
    )
    return Preview(used, container.command_of(used, setup, start.recipe, CONTAINER, looks=looks), tuple(unknown))


def _image(start: Start, used: Engine, unknown: list[str]) -> Image:
    """Return the image that is known by the wanted name, or that the engine has; else the name stands for its id."""
    for known in start.images:
        if start.wanted.key is None or known.key == str(start.wanted.key):
            return known
    if start.image is None:
        unknown.append("no image is named: IMAGE stands for it")
        return Image("IMAGE", "", "IMAGE", None, "CACHE")
    try:
        described = None if (where := reference.parse(start.image)).layout else used.image(start.image)
    except StackError:
        described = None
    if described is None:
        unknown.append(f"{used.name} does not have {start.image}: its name stands for its id, and CACHE for its volume")
        return Image(start.image, "", start.image, None, "CACHE")
    digest = images.digest_of(described, where.place) or described["Id"]
    return Image(start.image, digest, described["Id"], None, caches.name(digest, start.wanted.key))


def _model(start: Start, unknown: list[str]) -> tuple[Path, bool]:
    """Return the model's folder, and whether it is there."""
    if start.wanted.model is not None:
        return start.wanted.model, True
    checkpoint = start.recipe.checkpoint
    if checkpoint is None:
        unknown.append("the validation makes the model: MODEL stands for its folder")
        return Path("MODEL"), False
    where = hub_client.here()
    snapshot = download.cached(where, checkpoint.repository, checkpoint.revision)
    if snapshot is not None:
        return snapshot, True
    folder = download.place(where, checkpoint.repository, checkpoint.revision or "REVISION")
    unknown.append(f"{checkpoint.repository} would be downloaded to {folder}")
    return folder, False
