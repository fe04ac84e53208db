# SPDX-License-Identifier: Apache-2.0
"""Building the stack's image: wheels, what they need, and a build without network."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.images import labels, locking, own, saving, sbom, tools
from stack.images.base import BaseImage
from stack.images.engine import Engine, Step
from stack.model import digest, pins, series
from stack.model import stack as stacks
from stack.model.stack import Stack
from stack.store import cache
from stack.wheels import building
from stack.wheels.building import Built
from stack.wheels.decision import Asked, Mode, decide

FOLDER = "docker"
SERVE, DEVELOPMENT = "serve", "development"
_FILES = ("Dockerfile", "entrypoint.sh", "healthcheck.py", "develop.sh", "system/install.sh", "system/packages.txt")
OUTPUT = Path(".stack/images")
SYSTEM_SBOM, PYTHON_SBOM, LOCK = "system.cdx.json", "python.cdx.json", "requirements.txt"
"""Beside the image in its layout."""
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Order:
    """What to build: upstreams (all that have patches, unless named), over which published packages, for which platform, of what.

    `packages`: as `stack build wheels --from`, by upstream. `requirements`: a lock to take in place of resolving. `output`: the
    folder of the layout, in the stack's `.stack/images` unless given.
    """

    engine: Engine
    base: BaseImage
    upstreams: tuple[str, ...] = ()
    packages: tuple[tuple[str, str], ...] = ()
    platform: str | None = None
    target: str = SERVE
    requirements: Path | None = None
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """A finished image: its layout, the digest of its manifest, its id in the engine's storage, and what is in it."""

    folder: Path
    digest: str
    id: str
    stack: str
    wheels: tuple[str, ...]
    packages: int
    platform: str


def build(stores: Stores, order: Order, tell: Callable[[str], None]) -> Image:
    """Build an image; `tell` gets a line a step.

    Raises:
        StackError: something that it needs cannot be had, or a step failed.

    """
    place, engine, time = stores.place.cache, order.engine, _time(stores)
    files = _files(stores.stack.root)
    log = place / "images" / "log.txt"
    with cache.lock(log, lambda: tell("waiting for another build")), tempfile.TemporaryDirectory(prefix="stack-image-") as name:
        log.write_text("")
        context = Path(name)
        _write(context, files | _sources(stores.stack))
        tell(f"base image {order.base.name}@{order.base.digest[:19]}")
        base = order.base.pulled(engine, order.platform)
        given = {"BASE_IMAGE": base, "SYSTEM_CONTENT": _hash(context / "system")}
        step = Step(context, "system", given, time, network=True, platform=order.platform)
        tell("system packages")
        system = engine.build(step, log, tell)
        ask = partial(engine.ask, system)
        python = locking.python(ask)
        wheels = _wheels(stores, order, python.machine, context / "wheels", tell)
        lock = locking.locked([*wheels.values()], python, place, tell, order.requirements)
        _gather(locking.downloaded(lock, python, place, tell), context / "wheels")
        requirements = context / "requirements.txt"
        requirements.write_text(locking.exact(sorted((context / "wheels").glob("*.whl"))))
        tell("installing, without network")
        said = _labels(stores.stack, order.base, [*wheels], wheels, time)
        arguments = {**given, "SYSTEM": system, "WHEELS_CONTENT": cache.hash_of(requirements), **said}
        image = engine.build(replace(step, target=order.target, arguments=arguments, network=False), log, tell)
        tell("bills of materials")
        programs = tools.folder(place, tell)
        beside = {
            SYSTEM_SBOM: sbom.system(partial(engine.ask, image), time, programs),
            PYTHON_SBOM: sbom.python(requirements, programs),
            LOCK: requirements.read_bytes(),
        }
        tell("writing the image")
        folder = order.output or stores.stack.root / OUTPUT / _name(stores.stack, order, python.machine)
        found = saving.save(engine, image, folder, beside)
        count = len(beside[LOCK].splitlines())
        names = tuple(path.name for path in wheels.values())
        platform = f"linux/{_MACHINES.get(python.machine, python.machine)}"
        return Image(folder, found, image, digest.of(stores.stack), names, count, platform)


def _files(root: Path) -> dict[str, bytes]:
    """The stack's own files of an image.

    Raises:
        StackError: one is missing.

    """
    try:
        return {name: (root / FOLDER / name).read_bytes() for name in _FILES}
    except OSError as missing:
        raise StackError(
            f"{missing.filename} is missing", f"an image needs {FOLDER}/: copy it from a stack that has it"
        ) from missing


def _sources(stack: Stack) -> dict[str, bytes]:
    """The stack itself, without the conflicts that it once resolved: they make no difference to what is built."""
    names = [pins.FILE, f"{stacks.FOLDER}/{stacks.FILE}"]
    for one in stack.series:
        names += [f"{stacks.FOLDER}/{one.name}/{series.FILE}", *(f"{stacks.FOLDER}/{ref.path}" for ref in one.patches)]
    return {f"{labels.SOURCES.name}/{name}": (stack.root / name).read_bytes() for name in names}


def _write(context: Path, files: dict[str, bytes]) -> None:
    """The context: always with the same rights, whatever the user's umask."""
    (context / "wheels").mkdir()
    for name, data in files.items():
        path = context / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for path in context.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _hash(folder: Path) -> str:
    """What a folder holds."""
    return hashlib.sha256("".join(cache.hash_of(path) for path in sorted(folder.iterdir())).encode()).hexdigest()


def _time(stores: Stores) -> int:
    """The time of all files in the image: when the newest of the pinned releases was made, in seconds since 1970."""
    times = [0]
    for pin in stores.stack.pins:
        if pin.within is None:
            commit = stores.objects(pin.upstream).read(stores.obtain(pin.upstream).commit)
            found = re.search(rb"^committer .* (\d+) [+-]\d{4}$", commit, re.MULTILINE)
            times += [int(found[1])] if found else []
    return max(times)


def _wheels(stores: Stores, order: Order, machine: str, out: Path, tell: Callable[[str], None]) -> dict[str, Path]:
    """The stack's wheels and this tool's own, by package."""
    tell("wheels")
    asked = Asked(order.upstreams, packages=order.packages)
    decisions = decide(stores, asked)
    if any(one.mode is Mode.OVERLAY for one in decisions):
        asked = replace(asked, platforms=(machine,))
    built = [one for one in building.build(stores, asked, decisions, out) if isinstance(one, Built)]
    for statement in out.glob(f"*{building.STATEMENT}"):
        statement.unlink()
    paths = [*(one.path for one in built), own.wheel(out)]
    found = {str(canonicalize_name(parse_wheel_filename(path.name)[0])): path for path in paths}
    if len(found) < len(paths):
        raise StackError(
            "several published wheels fit: " + ", ".join(path.name for path in paths),
            "this is not known of any release: report it",
        )
    return found


def _gather(files: Sequence[Path], folder: Path) -> None:
    """Downloaded wheels in the context; on the same disk they are not copied."""
    for path in files:
        try:
            os.link(path, folder / path.name)
        except OSError:
            shutil.copyfile(path, folder / path.name)


def _labels(stack: Stack, base: BaseImage, packages: Sequence[str], wheels: dict[str, Path], time: int) -> dict[str, str]:
    versions = [str(parse_wheel_filename(path.name)[1]) for path in wheels.values()]
    return {
        "STACK_DIGEST": digest.of(stack),
        "STACK_PINS": labels.pins(stack),
        "STACK_PACKAGES": " ".join(packages),
        "STACK_VERSION": versions[0],
        "CREATED": datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "BASE_NAME": base.name,
        "BASE_DIGEST": base.digest,
    }


def _name(stack: Stack, order: Order, machine: str) -> str:
    """A folder's name: the stack's digest, what it is laid over, the machine."""
    marks = [digest.of(stack)[:12], *(package for _, package in order.packages), _MACHINES.get(machine, machine)]
    return "-".join([*marks, *([order.target] if order.target != SERVE else [])])
