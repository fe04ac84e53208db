# SPDX-License-Identifier: Apache-2.0
"""Run an image's packages in a container of it: validation tests exactly what is published."""

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.base import die_with_parent
from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.images import skopeo
from stack.images.engine import Container, Engine
from stack.images.image import Platform
from stack.images.reference import Reference
from stack.store import cache
from stack.validation.python_env import OFFLINE, Process

_PYTHON = "/opt/stack/bin/python"
_SERVER = "vllm"
VALIDATION = "validation"
_OWN = (Path("/opt/stack"), Path("/usr"), Path("/etc"))
"""Folders in which an image has its packages and its system."""


@dataclass(frozen=True, slots=True)
class ImageContainer:
    """A container of an image; `entry` is the image's entry point, which precedes every command."""

    engine: Engine
    container: Container
    entry: tuple[str, ...]

    def __str__(self) -> str:
        return "the image"

    def interpreter(self, arguments: Sequence[str], variables: Mapping[str, str], lent: Sequence[Path] = ()) -> Process:
        """Run the image's Python, without network."""
        command = self.engine.inside(self.container, (_PYTHON, *arguments), {**OFFLINE, **variables}, [*_readable(lent)], False)
        return self._watched(command)

    def server(self, arguments: Sequence[str], variables: Mapping[str, str], _work: Path, lent: Sequence[Path] = ()) -> Process:
        """Run `vllm` as the image starts it, on this machine's network, so that clients here can reach it."""
        return self._watched(self.serving(arguments, variables, lent))

    def serving(self, arguments: Sequence[str], variables: Mapping[str, str], lent: Sequence[Path]) -> tuple[str, ...]:
        """Return the engine's command for `server`."""
        command = (*self.entry, _SERVER, *arguments)
        return self.engine.inside(self.container, command, {**OFFLINE, **variables}, [*_readable(lent)], True)

    @staticmethod
    def _watched(command: Sequence[str]) -> Process:
        """Start a command of the engine under two watchdogs.

        If this process or the engine is killed, the watchdogs end what still runs in the container.
        """
        watch = (sys.executable, die_with_parent.__file__, "-")
        return Process((*watch, *watch, *command), dict(os.environ))


def _readable(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield folders, and the folders that links in them point to: a downloaded model consists of links.

    Raises:
        StackError: the image's user, a different one, may not read a file; or a folder cannot be mounted.

    """
    for folder in folders:
        _demand_lendable(folder.absolute())
        try:
            linked = {file.resolve(strict=True).parent for file in _files(folder) if file.is_symlink() and file.is_file()}
        except OSError as failed:
            raise StackError(f"{failed.filename} cannot be read ({failed.strerror})", "copy or download it again") from failed
        yield folder.absolute()
        for target in sorted(linked):
            _demand_lendable(target)
            yield target


def _files(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder, after checking that everybody may read them."""
    _demand_rights(folder)
    for entry in sorted(folder.iterdir()):
        _demand_rights(entry)
        yield entry


def _demand_rights(path: Path) -> None:
    mode = path.stat().st_mode
    wanted, words = (stat.S_IROTH | stat.S_IXOTH, "o+rx") if stat.S_ISDIR(mode) else (stat.S_IROTH, "o+r")
    if mode & wanted != wanted:
        raise StackError(f"the image's user may not read {path}", f"chmod {words} {path}")


def _demand_lendable(folder: Path) -> None:
    if ":" in str(folder):  # a colon ends a path in the engines' mount options
        raise StackError(f"{folder} cannot be mounted into a container because of its colon", "rename it")
    for own in _OWN:
        if own.is_relative_to(folder):
            raise StackError(f"{folder} would hide {own} of the image", "name a folder further down")


@contextmanager
def entered(
    engine: Engine,
    layout: Reference,
    image: Platform,
    place: Path,
    devices: Sequence[str] = (),
    tell: Progress = silent,
    purpose: str = VALIDATION,
) -> Iterator[ImageContainer]:
    """Provide a container of an image in a layout while the block runs; only one at a time for each cache and purpose.

    Args:
        engine: the engine that runs it.
        layout: the layout of the image.
        image: the image that the layout has to contain.
        place: the cache folder.
        devices: devices of this machine, as the engine names them (`nvidia.com/gpu=all`).
        tell: called with a line for each step.
        purpose: a word that names the use.

    Raises:
        StackError: the engine's storage contains another image afterwards, or a device is missing.

    """
    with cache.lock(place / "images" / purpose, lambda: tell(f"waiting for another {purpose}")):
        tell("loading the image into the engine's storage")
        made = planned(engine, image, place, devices, purpose)
        name = made.container.image
        engine.load(str(layout), name, image.name)
        loaded = skopeo.digest(engine.manifest(name))
        if loaded != image.digest:
            raise StackError(
                f"{engine.name} stored the image as {loaded}, but it is {image.digest}", "report this: it cannot be validated"
            )
        with tempfile.TemporaryDirectory(prefix="stack-home-") as home:
            Path(home).chmod(0o755)
            container = engine.create(name, made.container.name, devices, Path(home))
            try:
                yield ImageContainer(engine, container, image.entry)
            finally:
                engine.remove(container)


def planned(
    engine: Engine, image: Platform, place: Path, devices: Sequence[str] = (), purpose: str = VALIDATION
) -> ImageContainer:
    """Return the container that `entered` would make, without making it."""
    name = f"localhost/stack/validated:{image.digest.removeprefix('sha256:')}"
    # Containers are global to the engine, but our locks are per cache: name the container after the cache.
    own = hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:12]
    return ImageContainer(engine, Container(f"stack-{purpose}-{own}", name, tuple(devices)), image.entry)
