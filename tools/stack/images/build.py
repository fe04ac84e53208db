# SPDX-License-Identifier: Apache-2.0
"""Build the stack's image: its wheels, their requirements, and an installation without network."""

import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from packaging.utils import parse_wheel_filename

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.base.text import counted
from stack.carry.upstream_stores import Stores
from stack.deploy.recipes import Recipe
from stack.images import (
    ahead,
    completeness,
    installing,
    labels,
    locking,
    processors,
    reading,
    recipe_choices,
    saving,
    sbom,
    stack_wheels,
    system,
    tools,
    users,
)
from stack.images.base import BaseImage
from stack.images.engine import BuildStep, Engine
from stack.model import digest, lanes
from stack.model.stack import Stack
from stack.store import cache
from stack.wheels.decision import WheelRequest

FOLDER = "docker"
SERVE, DEVELOPMENT = "serve", "development"
_PACKAGES = "system/packages.txt"
_SYSTEM = ("system/Dockerfile", "system/install.sh", _PACKAGES)
_FILES = ("Dockerfile", "entrypoint.sh", "healthcheck.py", "develop.sh", *_SYSTEM)
OUTPUT = Path(".stack/images")
SYSTEM_SBOM, PYTHON_SBOM, LOCK = "system.cdx.json", "python.cdx.json", "requirements.txt"
"""Files that are written next to the image in its layout."""


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """The options of a build.

    `upstreams` limits the upstreams; by default all with patches are built. `packages` maps upstreams to published packages, as
    `stack build wheels --from` does. `requirements` is a lock file that replaces resolving. `output` is the layout's folder, by
    default in the stack's `.stack/images`. `recipe` is the one that the image serves: it decides for which GPU kernels are compiled.
    `ahead` names the JIT modules that the image shall have compiled; empty: those that fit the recipe.
    """

    engine: Engine
    base: BaseImage
    upstreams: tuple[str, ...] = ()
    packages: tuple[tuple[str, str], ...] = ()
    platform: str | None = None
    target: str = SERVE
    requirements: Path | None = None
    output: Path | None = None
    recipe: Recipe | None = None
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A built image: its layout, its manifest's digest, its id in the engine's storage, and its contents.

    `compiled`: the JIT modules that it has compiled. `left`: those that are left to the JIT, empty if it has no module compiled.
    """

    folder: Path
    digest: str
    id: str
    stack: str
    wheels: tuple[str, ...]
    packages: int
    platform: str
    compiled: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def build(stores: Stores, order: BuildOrder, tell: Progress) -> BuiltImage:
    """Build an image; `tell` is called with a line for each step.

    Raises:
        StackError: an input cannot be obtained, or a step failed.

    """
    place, engine, time = stores.place.cache, order.engine, _time(stores)
    files = _files(stores.stack.root)
    log = place / "images" / "log.txt"
    with cache.lock(log, lambda: tell("waiting for another build")), _context(log.parent) as context:
        log.write_text("")
        _write(context, files | _sources(stores.stack))
        tell(f"base image {order.base.name}@{order.base.digest[:19]}")
        base = order.base.pulled(engine, order.platform)
        base_id, system = _system(order, base, context, time, log, tell)
        python = system.python
        request = WheelRequest(order.upstreams, packages=order.packages, ahead=ahead.wanted(order.ahead, order.recipe))
        wheels, left = stack_wheels.build(stores, request, python.machine, context / "wheels", tell, named=bool(order.ahead))
        compiled = ahead.modules(wheels)
        further = () if order.recipe is None else recipe_choices.compiler(order.recipe, system)
        lock = locking.locked([*wheels.values()], python, place, tell, order.requirements, further)
        # The stack's own come last: torch_c_dlpack_ext has a file of the same path as FlashInfer, whose files are compared at each start.
        files_ = [*locking.downloaded(lock, python, place, tell), *wheels.values()]
        if problems := completeness.unmet(files_, python):
            raise StackError(
                f"the packages are incomplete: {'; '.join(problems[:5])}", "resolve them again, without --requirements"
            )
        requirements = context / "requirements.txt"
        requirements.write_text(locking.exact(files_))
        tell(f"installing {counted(len(files_), 'package')}, without network")
        installing.install(files_, python, context / "root", link_cuda=not recipe_choices.has_compiler(system))
        users.add(partial(reading.read, engine, base_id), context)
        arguments = {"SYSTEM": base_id, **_labels(stores.stack, order, [*wheels], wheels, time)}
        step = BuildStep(context, order.target, arguments, time, network=False, platform=order.platform)
        image = engine.build(step, log, tell)
        tell("bills of materials")
        programs = tools.folder(place, tell)
        further_files = {
            SYSTEM_SBOM: sbom.system(system, time, programs),
            PYTHON_SBOM: ahead.noted(sbom.python(requirements, programs), compiled, left),
            LOCK: requirements.read_bytes(),
        }
        tell("writing the image")
        folder = order.output or stores.stack.root / OUTPUT / _name(stores.stack, order, system.architecture)
        saved_digest = saving.save(engine, image, folder, further_files)
        names = tuple(path.name for path in wheels.values())
        platform = f"linux/{system.architecture}"
        have = tuple(name for each in compiled.values() for name in each)
        return BuiltImage(folder, saved_digest, image, digest.of(stores.stack), names, len(files_), platform, have, left)


@contextmanager
def _context(folder: Path) -> Iterator[Path]:
    """Provide an empty folder for the build's context, in the cache: gigabytes of packages are unpacked into it."""
    with tempfile.TemporaryDirectory(prefix="context-", dir=folder) as name:
        yield Path(name)


def _system(order: BuildOrder, base: str, context: Path, time: int, log: Path, tell: Progress) -> tuple[str, system.System]:
    """Return the base with all system packages, and what it has; packages are installed only if it lacks some.

    Raises:
        StackError: the base lacks packages, and its programs do not run on this machine.

    """
    wanted = (context / _PACKAGES).read_text().split()
    found = system.read(partial(reading.read, order.engine, base))
    lacking = found.lacking(wanted)
    if not lacking:
        return base, found
    if not processors.runs(found.architecture):
        raise StackError(
            f"the base image lacks {', '.join(lacking)}, and programs for {found.architecture} do not run on this machine",
            f"name a base that has them; `stack image base --platform linux/{found.architecture}` makes one",
        )
    tell("system packages")
    arguments = {"BASE_IMAGE": base, "SYSTEM_CONTENT": _hash(context / "system")}
    made = order.engine.build(
        BuildStep(context, "system", arguments, time, network=True, platform=order.platform, file="system/Dockerfile"),
        log,
        tell,
    )
    return made, system.read(partial(reading.read, order.engine, made))


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


def system_packages(root: Path) -> tuple[str, ...]:
    """Name the system packages that an image of the stack in `root` has.

    Raises:
        StackError: the stack has no list of them.

    """
    return tuple(_files(root)[_PACKAGES].decode().split())


def _sources(stack: Stack) -> dict[str, bytes]:
    """Read the stack's pins, series and patches, without conflict resolutions, which do not affect the build.

    Of a lane, the files say by themselves what it carries: the image has one stack, and no lanes.
    """
    return {f"{labels.SOURCES.name}/{name}": data for name, data in lanes.alone(stack).items()}


def _write(context: Path, files: dict[str, bytes]) -> None:
    """Write the build context, with the same permissions for any umask."""
    (context / "wheels").mkdir()
    (context / users.HOME).mkdir(parents=True)
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


def _labels(stack: Stack, order: BuildOrder, packages: Sequence[str], wheels: dict[str, Path], time: int) -> dict[str, str]:
    versions = [str(parse_wheel_filename(path.name)[1]) for path in wheels.values()]
    return {
        "STACK_DIGEST": digest.of(stack),
        "STACK_PINS": labels.pins(stack),
        "STACK_LANE": stack.lane or "",
        "STACK_PACKAGES": " ".join(packages),
        "STACK_VERSION": versions[0],
        "CREATED": datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "BASE_NAME": order.base.name,
        "BASE_DIGEST": order.base.digest,
        **({} if order.recipe is None else recipe_choices.arguments(order.recipe)),
    }


def _name(stack: Stack, order: BuildOrder, architecture: str) -> str:
    """Name the layout's folder after the lane, the stack's digest, packages, the recipe, the processor and the target."""
    lane = [] if stack.lane is None else [f"lane-{stack.lane}"]
    recipe = [] if order.recipe is None else [order.recipe.name]
    marks = [*lane, digest.of(stack)[:12], *(package for _, package in order.packages), *recipe, architecture]
    return "-".join([*marks, *([order.target] if order.target != SERVE else [])])
