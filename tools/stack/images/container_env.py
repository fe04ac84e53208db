# SPDX-License-Identifier: Apache-2.0
"""An image's packages, run in a container of it: what is validated is what will be published."""

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.base import die_with_parent
from stack.base.errors import StackError
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
"""Where an image has its packages and its system."""


@dataclass(frozen=True, slots=True)
class Inside:
    """A container of an image; `entry` is what the image starts before every command."""

    engine: Engine
    container: Container
    entry: tuple[str, ...]

    def __str__(self) -> str:
        return "the image"

    def interpreter(self, arguments: Sequence[str], variables: Mapping[str, str], lent: Sequence[Path] = ()) -> Process:
        """The image's Python, without network."""
        command = self.engine.inside(self.container, (_PYTHON, *arguments), {**OFFLINE, **variables}, [*_readable(lent)], False)
        return self._watched(command)

    def server(self, arguments: Sequence[str], variables: Mapping[str, str], _work: Path, lent: Sequence[Path] = ()) -> Process:
        """`vllm` with arguments, as the image itself starts it; it shares this machine's network, so that it can be asked."""
        return self._watched(self.serving(arguments, variables, lent))

    def serving(self, arguments: Sequence[str], variables: Mapping[str, str], lent: Sequence[Path]) -> tuple[str, ...]:
        """The engine's command that does so."""
        command = (*self.entry, _SERVER, *arguments)
        return self.engine.inside(self.container, command, {**OFFLINE, **variables}, [*_readable(lent)], True)

    @staticmethod
    def _watched(command: Sequence[str]) -> Process:
        """An engine that is killed leaves what runs in the container: what starts it here ends that, too, and another one, its own."""
        watch = (sys.executable, die_with_parent.__file__, "-")
        return Process((*watch, *watch, *command), dict(os.environ))


def _readable(folders: Sequence[Path]) -> Iterator[Path]:
    """Folders, and those that files in them are links into: a downloaded model is one of links.

    Raises:
        StackError: the image's user, who is nobody here, may not read one of the files; or a folder cannot be lent.

    """
    for folder in folders:
        _demand_lendable(folder.absolute())
        try:
            linked = {one.resolve(strict=True).parent for one in _files(folder) if one.is_symlink() and one.is_file()}
        except OSError as failed:
            raise StackError(f"{failed.filename} cannot be read ({failed.strerror})", "copy or download it again") from failed
        yield folder.absolute()
        for one in sorted(linked):
            _demand_lendable(one)
            yield one


def _files(folder: Path) -> Iterator[Path]:
    """What lies in a folder, once everybody may read it."""
    _demand_rights(folder)
    for one in sorted(folder.iterdir()):
        _demand_rights(one)
        yield one


def _demand_rights(one: Path) -> None:
    mode = one.stat().st_mode
    wanted, words = (stat.S_IROTH | stat.S_IXOTH, "o+rx") if stat.S_ISDIR(mode) else (stat.S_IROTH, "o+r")
    if mode & wanted != wanted:
        raise StackError(f"the image's user may not read {one}", f"chmod {words} {one}")


def _demand_lendable(folder: Path) -> None:
    if ":" in str(folder):  # it ends a path in what engines are told to mount
        raise StackError(f"{folder} cannot be lent to a container, for its colon", "give it another name")
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
    tell: Callable[[str], None] = lambda _: None,
    purpose: str = VALIDATION,
) -> Iterator[Inside]:
    """A container of the image in a layout as long as the block runs; one at a time for a cache and a purpose.

    Args:
        engine: what runs it.
        layout: where the image lies.
        image: what has to be there.
        place: the cache folder.
        devices: of this machine, as the engine names them (`nvidia.com/gpu=all`).
        tell: gets a line a step.
        purpose: what it is for, a word.

    Raises:
        StackError: the engine's storage hands out another image, or has no such device.

    """
    with cache.lock(place / "images" / purpose, lambda: tell(f"waiting for another {purpose}")):
        tell("taking the image into the engine's storage")
        made = planned(engine, image, place, devices, purpose)
        name = made.container.image
        engine.load(str(layout), name, image.name)
        found = skopeo.digest(engine.manifest(name))
        if found != image.digest:
            raise StackError(
                f"{engine.name} took the image in as {found}, it is {image.digest}", "report this: it cannot be validated"
            )
        with tempfile.TemporaryDirectory(prefix="stack-home-") as home:
            Path(home).chmod(0o755)
            container = engine.create(name, made.container.name, devices, Path(home))
            try:
                yield Inside(engine, container, image.entry)
            finally:
                engine.remove(container)


def planned(engine: Engine, image: Platform, place: Path, devices: Sequence[str] = (), purpose: str = VALIDATION) -> Inside:
    """What `entered` makes, not yet made."""
    name = f"localhost/stack/validated:{image.digest.removeprefix('sha256:')}"
    # Engines know nothing of our caches: who has another one waits for another lock.
    own = hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:12]
    return Inside(engine, Container(f"stack-{purpose}-{own}", name, tuple(devices)), image.entry)
