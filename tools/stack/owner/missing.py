# SPDX-License-Identifier: Apache-2.0
"""Find everything that a start lacks before it begins, so that one call names all of it."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.base import bounded_http
from stack.base.errors import SeveralErrors, StackError
from stack.deploy.recipes import Recipe
from stack.images import envelope, reference
from stack.owner import container, download, engine, hub, hub_client, images, memory
from stack.owner.engine import Engine
from stack.owner.readiness import places
from stack.owner.state import Image, State, Wanted
from stack.serving import demands
from stack.serving.container import INSIDE
from stack.validation import machine

_MEND = "mend all of it, then run the command again"
_SPARE = 2 * 10**9
"""Bytes that are left free beside a model and an image."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start: recipe, what is wanted, and what is known; the engine that was named, and seconds to wait for memory."""

    recipe: Recipe
    wanted: Wanted
    known: State | None
    engine: str | None
    patience: float

    @property
    def image(self) -> str | None:
        """The image's name: the wanted one, else that of the server which ran last."""
        setup = (self.known.target or self.known.now) if self.known is not None else None
        return self.wanted.image or (setup.image.name if setup is not None else None)

    @property
    def images(self) -> tuple[Image, ...]:
        """The images that are known by that name."""
        setups = (self.known.target, self.known.now) if self.known is not None else ()
        return tuple(each.image for each in setups if each is not None and each.image.name == self.image)


def demand(start: Start, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse a start that lacks something.

    Raises:
        StackError: One thing is missing.
        SeveralErrors: Several are.

    """
    found = list(_problems(start, environment))
    if len(found) == 1:
        raise found[0]
    if found:
        raise SeveralErrors(f"{len(found)} things are missing", _MEND, found)


def _problems(start: Start, environment: Mapping[str, str]) -> Iterator[StackError]:
    used: Engine | None = None
    try:
        used = engine.found(engine.wanted(start.engine, start.known))
    except StackError as none:
        yield none
    runs = used is not None and _runs(used, start.known)
    checks: tuple[Callable[[], object], ...] = (
        lambda: _image(start, used),
        lambda: _key(start.wanted, environment),
        lambda: demands.demand_machine(start.recipe, machine.here(), fallback=start.wanted.fallback),
        lambda: _model(start),
        # The server that runs ends first, and gives back its memory and its port.
        lambda: None if runs or start.patience else memory.demand(start.recipe, start.wanted.extra, 0.0),
        lambda: None if runs else demands.demand_port(_host(start.wanted), start.wanted.port),
    )
    for check in checks:
        try:
            check()
        except StackError as problem:
            yield problem


def _host(wanted: Wanted) -> str:
    return INSIDE if wanted.opened else "127.0.0.1"


def _runs(used: Engine, known: State | None) -> bool:
    """Return whether this user's server runs; what cannot be read is judged by the start itself."""
    try:
        there = used.container(known.container) if known is not None else None
    except StackError:
        return False
    return there is not None and there.running


def _image(start: Start, used: Engine | None) -> None:
    if start.image is None:
        raise StackError("no image is named", images.NAMELESS.format(recipe=start.recipe.name))
    where = reference.parse(start.image)
    if start.wanted.key is not None and not images.is_local(where):
        envelope.public(start.wanted.key)
    if images.is_local(where) and used is not None and not start.images:
        images.local(used, where, start.wanted.key)


def _key(wanted: Wanted, environment: Mapping[str, str]) -> None:
    bounded_http.demand_key(environment.get(demands.KEY))
    demands.demand_key(_host(wanted), environment)


def _model(start: Start) -> None:
    """Refuse a folder that is no model, a model that cannot be had without network, and a disk that is too small for it."""
    folder, checkpoint = start.wanted.model, start.recipe.checkpoint
    if folder is not None:
        demands.demand_model(folder)
        container.mount(folder)
        return
    if checkpoint is None:
        if not start.recipe.is_ours:
            raise StackError(
                f"the model of recipe {start.recipe.name} is the one that you serve", "name its folder with --model"
            )
        return
    where = hub_client.here()
    snapshot = download.cached(where, checkpoint.repository, checkpoint.revision)
    if snapshot is not None and not hub.lacking(snapshot):
        return
    if where.offline:
        raise StackError(
            f"{checkpoint.repository} is not whole in the cache, and HF_HUB_OFFLINE is set",
            "unset it, or name a folder with --model",
        )
    _disk(where.cache, checkpoint.repository, checkpoint.size)


def _disk(cache: Path, repository: str, size: int | None) -> None:
    there = places.of_model(cache, repository)
    left = max(0, (size or 0) - there.present)
    if there.free is not None and left + _SPARE > there.free:
        raise StackError(
            f"the model takes {left / 1e9:.0f} GB more, and {cache} has {there.free / 1e9:.0f} GB free",
            "make room, or name a folder on another disk in HF_HOME",
        )
