# SPDX-License-Identifier: Apache-2.0
"""Build the stack's image: its wheels, their requirements, and an installation without network."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.carry.upstream_stores import Stores
from stack.images import labels, locking, own, saving, sbom, tools
from stack.images.base import BaseImage
from stack.images.engine import BuildStep, Engine
from stack.model import digest, lanes
from stack.model.stack import Stack
from stack.store import cache
from stack.wheels import building
from stack.wheels.building import Built
from stack.wheels.decision import Mode, WheelRequest, decide

FOLDER = "docker"
SERVE, DEVELOPMENT = "serve", "development"
_FILES = ("Dockerfile", "entrypoint.sh", "healthcheck.py", "develop.sh", "system/install.sh", "system/packages.txt")
OUTPUT = Path(".stack/images")
SYSTEM_SBOM, PYTHON_SBOM, LOCK = "system.cdx.json", "python.cdx.json", "requirements.txt"
"""Files that are written next to the image in its layout."""
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """The options of a build.

    `upstreams` limits the upstreams; by default all with patches are built. `packages` maps upstreams to published packages, as
    `stack build wheels --from` does. `requirements` is a lock file that replaces resolving. `output` is the layout's folder, by
    default in the stack's `.stack/images`.
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
class BuiltImage:
    """A built image: its layout, its manifest's digest, its id in the engine's storage, and its contents."""

    folder: Path
    digest: str
    id: str
    stack: str
    wheels: tuple[str, ...]
    packages: int
    platform: str


def build(stores: Stores, order: BuildOrder, tell: Progress) -> BuiltImage:
    """Build an image; `tell` is called with a line for each step.

    Raises:
        StackError: an input cannot be obtained, or a step failed.

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
        step = BuildStep(context, "system", given, time, network=True, platform=order.platform)
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
        image_labels = _labels(stores.stack, order.base, [*wheels], wheels, time)
        arguments = {**given, "SYSTEM": system, "WHEELS_CONTENT": cache.hash_of(requirements), **image_labels}
        image = engine.build(replace(step, target=order.target, arguments=arguments, network=False), log, tell)
        tell("bills of materials")
        programs = tools.folder(place, tell)
        further_files = {
            SYSTEM_SBOM: sbom.system(partial(engine.ask, image), time, programs),
            PYTHON_SBOM: sbom.python(requirements, programs),
            LOCK: requirements.read_bytes(),
        }
        tell("writing the image")
        folder = order.output or stores.stack.root / OUTPUT / _name(stores.stack, order, python.machine)
        saved_digest = saving.save(engine, image, folder, further_files)
        count = len(further_files[LOCK].splitlines())
        names = tuple(path.name for path in wheels.values())
        platform = f"linux/{_MACHINES.get(python.machine, python.machine)}"
        return BuiltImage(folder, saved_digest, image, digest.of(stores.stack), names, count, platform)


def _files(root: Path) -> dict[str, bytes]:
    """Read the stack's own files for an image.

    Raises:
        StackError: a file is missing.

    """
    try:
        return {name: (root / FOLDER / name).read_bytes() for name in _FILES}
    except OSError as missing:
        raise StackError(
            f"{missing.filename} is missing", f"an image needs {FOLDER}/: copy it from a stack that has it"
        ) from missing


def _sources(stack: Stack) -> dict[str, bytes]:
    """Read the stack's pins, series and patches, without conflict resolutions, which do not affect the build.

    Of a lane, the files say by themselves what it carries: the image has one stack, and no lanes.
    """
    return {f"{labels.SOURCES.name}/{name}": data for name, data in lanes.alone(stack).items()}


def _write(context: Path, files: dict[str, bytes]) -> None:
    """Write the build context, with the same permissions for any umask."""
    (context / "wheels").mkdir()
    for name, data in files.items():
        path = context / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for path in context.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _hash(folder: Path) -> str:
    """Hash the contents of a folder."""
    return hashlib.sha256("".join(cache.hash_of(path) for path in sorted(folder.iterdir())).encode()).hexdigest()


def _time(stores: Stores) -> int:
    """Return the time for all files in the image, in seconds since 1970: the commit time of the newest pinned release."""
    times = [0]
    for pin in stores.stack.pins:
        if pin.within is None:
            commit = stores.objects(pin.upstream).read(stores.obtain(pin.upstream).commit)
            match = re.search(rb"^committer .* (\d+) [+-]\d{4}$", commit, re.MULTILINE)
            times += [int(match[1])] if match else []
    return max(times)


def _wheels(stores: Stores, order: BuildOrder, machine: str, out: Path, tell: Progress) -> dict[str, Path]:
    """Build the stack's wheels and this tool's own, and return them by package."""
    tell("wheels")
    request = WheelRequest(order.upstreams, packages=order.packages)
    decisions = decide(stores, request)
    if any(item.mode is Mode.OVERLAY for item in decisions):
        request = replace(request, platforms=(machine,))
    built = [item for item in building.build(stores, request, decisions, out) if isinstance(item, Built)]
    for statement in out.glob(f"*{building.STATEMENT}"):
        statement.unlink()
    paths = [*(item.path for item in built), own.wheel(out)]
    by_package = {str(canonicalize_name(parse_wheel_filename(path.name)[0])): path for path in paths}
    if len(by_package) < len(paths):
        raise StackError(
            "several published wheels fit: " + ", ".join(path.name for path in paths),
            "no known release has several: report it",
        )
    return by_package


def _gather(files: Sequence[Path], folder: Path) -> None:
    """Put downloaded wheels into the context, as hard links where the disk allows it."""
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
        "STACK_LANE": stack.lane or "",
        "STACK_PACKAGES": " ".join(packages),
        "STACK_VERSION": versions[0],
        "CREATED": datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "BASE_NAME": base.name,
        "BASE_DIGEST": base.digest,
    }


def _name(stack: Stack, order: BuildOrder, machine: str) -> str:
    """Name the layout's folder after the lane, the stack's digest, the published packages, the machine and the target."""
    lane = [] if stack.lane is None else [f"lane-{stack.lane}"]
    marks = [*lane, digest.of(stack)[:12], *(package for _, package in order.packages), _MACHINES.get(machine, machine)]
    return "-".join([*marks, *([order.target] if order.target != SERVE else [])])
