# SPDX-License-Identifier: Apache-2.0
"""Provide a recipe's model: a folder of the owner's, a revision that is in the cache, or one that is downloaded."""

from collections.abc import Callable
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.deploy.recipes import Recipe
from stack.owner import download, hub, hub_client
from stack.owner.hub_client import Hub
from stack.owner.state import Model
from stack.serving import demands


def provide(recipe: Recipe, folder: Path | None, known: Model | None, made: Callable[[str], Path], tell: Progress) -> Model:
    """Return a recipe's model, with all of its files on this machine.

    Args:
        recipe: The recipe.
        folder: The folder that the owner has named, if any.
        known: The model that was checked before: if its files are the same still, they are not read again.
        made: Makes a model of the validation, by its name, and returns its folder.
        tell: Gets the progress.

    Raises:
        StackError: The model is not there and cannot be downloaded, or is damaged.

    """
    if folder is not None:
        demands.demand_model(folder)
        return Model(str(folder.resolve()))
    if recipe.is_ours:
        return Model(str(made(recipe.model).resolve()))
    checkpoint = recipe.checkpoint
    if checkpoint is None:
        raise StackError(f"the model of recipe {recipe.name} is the one that you serve", "name its folder with --model")
    return published(hub_client.here(), checkpoint.repository, checkpoint.revision, known, tell)


def published(where: Hub, repository: str, revision: str | None, known: Model | None, tell: Progress) -> Model:
    """Take a revision that is whole in the cache, without network; else download what it lacks.

    Raises:
        StackError: It cannot be downloaded, or is damaged and the network is forbidden.

    """
    snapshot = download.cached(where, repository, revision)
    mark = hub.fingerprint(snapshot) if snapshot is not None else None
    if known is not None and snapshot is not None and (known.folder, known.checked) == (str(snapshot), mark):
        return known
    # A damaged file would be kept by a download that looks at sizes only.
    bad = hub.damaged(snapshot, hub.parts(snapshot), tell) if snapshot is not None else ()
    if snapshot is not None and not bad and not hub.lacking(snapshot):
        return Model(str(snapshot), repository, snapshot.name, mark)
    if where.offline:
        lacks = f"{bad[0]} of {repository} is damaged" if bad else f"{repository} is not whole in the cache"
        raise StackError(f"{lacks}, and HF_HUB_OFFLINE is set", "unset it, or name a folder with --model")
    if snapshot is not None and bad:
        tell(f"downloading {bad[0]} again: it is damaged")
        download.drop(snapshot, bad)
    snapshot = download.download(where, repository, revision, tell)
    return Model(str(snapshot), repository, snapshot.name, hub.fingerprint(snapshot))
