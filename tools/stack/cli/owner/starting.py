# SPDX-License-Identifier: Apache-2.0
"""Code that `up`, `update`, `rollback` and `down` share: the owner's server, its options, and lines for its steps."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.cli.common import Options, progress
from stack.cli.rendering import settings
from stack.cli.seconds import Gigabytes, Seconds
from stack.cli.sentences import tell
from stack.owner import engine as engines
from stack.owner import state, state_file
from stack.owner.engine import Engine
from stack.owner.nodes import followers, kept
from stack.owner.server import Place
from stack.owner.state import State
from stack.owner.verbs import Owner
from stack.serving import memory_guard
from stack.store import cache
from stack.validation.serve import fixture_cache

_LONG = 2.0
"""Seconds of a step that is worth a line of its own when it has ended."""
_LAYOUT = "oci:"
FAILED = "failed-start.log"
"""The file beside the state with the log of a server that did not do."""


def _absolute(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return an image's name that means the same in every folder: a command is finished by a later one."""
    if value is None or not value.startswith(_LAYOUT):
        return value
    return f"{_LAYOUT}{Path(value.removeprefix(_LAYOUT)).absolute()}"


image_option = click.option(
    "--image",
    metavar="REF|oci:DIR",
    envvar="STACK_IMAGE",
    callback=_absolute,
    help="The image: HOST/NAME:TAG, HOST/NAME@sha256:..., localhost/NAME:TAG for one that the engine has, or oci:DIR for a layout. "
    "Default: $STACK_IMAGE, else the one that ran last.",
)
key_option = click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    envvar="STACK_KEY",
    help="The public key that has to have signed the image. Default: $STACK_KEY; without one, nothing is verified.",
)
engine_option = click.option(
    "--engine",
    type=click.Choice(engines.ENGINES),
    help="The engine. Default: the one that runs the server, else docker, else podman.",
)
timeout_option = click.option(
    "--timeout",
    type=Seconds(),
    default=5400.0,
    show_default=True,
    help="Seconds to wait for the first answer; the first start compiles kernels for up to an hour.",
)
wait_option = click.option(
    "--wait-for-memory",
    type=Seconds(),
    default=None,
    help="Seconds to wait until enough memory is available. Default: refuse at once.",
)
keep_free_option = click.option(
    "--keep-free",
    type=Gigabytes(zero=True),
    metavar="GB",
    help="Kill the server when less memory and swap than this is left, before the machine freezes; 0: never. "
    f"Default: {memory_guard.UNIFIED:g} where CPU and GPU share the memory, else 0.",
)


@contextlib.contextmanager
def changing(
    options: Options, engine: str | None, seconds: float = 60.0, *, patience: float | None = None, spread: bool = False
) -> Iterator[tuple[Owner, State]]:
    """Yield the owner's server and its state, which no other process changes meanwhile; show the steps.

    `spread`: it is to run on all nodes of `spark-stack setup`; so it is, too, where one of the servers known before did.

    Raises:
        StackError: Another process changes it, no engine answers, the state is damaged, or the nodes of a server are not known.

    """
    file = state.path()
    with state_file.locked(file), _steps() as told:
        known = state_file.read(file)
        found = engines.found(engines.wanted(engine, known))
        known = _with_engine(known, found) if known is not None and not known.is_empty else State(found.name)
        spread = spread or any(each is not None and each.spread for each in (known.now, known.before, known.target))
        others = followers.of(kept.read(kept.path()), found.name) if spread else ()
        if not others:
            _demand_nodes(known, found)
        log, patience = file.with_name(FAILED), patience or 0.0
        place = Place(found, known.container, options.root_if_any(), log, seconds, told, tell, patience, others)

        def made(name: str) -> Path:
            return fixture_cache.prepare(cache.root(options.cache), told).model(name)

        yield Owner(place, file, made), known


def _with_engine(known: State, engine: Engine) -> State:
    """Return the state with another engine, which has none of the old one's images.

    Raises:
        StackError: The old engine still has the container.

    """
    if engine.name == known.engine:
        return known
    if engines.Engine(known.engine).container(known.container) is not None:
        raise StackError(f"the server is a container of {known.engine}", "leave --engine out, or call spark-stack down first")
    return State(engine.name, known.container)


def _demand_nodes(known: State, engine: Engine) -> None:
    """Refuse to change a server on several machines if only this one is known: the others would go on without it.

    Raises:
        StackError: There is such a server.

    """
    spread = any(each is not None and each.spread for each in (known.now, known.target))
    if spread and engine.container(known.container) is not None:
        raise StackError(
            "the server runs on several machines, and which ones is not known any more",
            "run spark-stack setup with their names",
        )


@contextlib.contextmanager
def _steps() -> Iterator[Progress]:
    """Show progress on a terminal, and everywhere a line for each step that took long."""
    with progress() as shown:
        steps = _Steps(shown)
        try:
            yield steps
        finally:
            steps.end()


class _Steps:
    """A callback for progress that prints each step that took long, with its seconds, when the next one begins."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._step, self._since = "", 0.0

    def __call__(self, step: str, done: int = 0, total: int | None = None, /) -> None:
        """Report progress of a step."""
        if step != self._step:
            self.end()
            self._step, self._since = step, time.monotonic()
        self._shown(step, done, total)

    def end(self) -> None:
        """End the current step."""
        seconds = time.monotonic() - self._since
        if self._step and seconds >= _LONG and not settings.current().quiet:
            tell(f"{self._step}: {seconds:.0f} s")
        self._step = ""
