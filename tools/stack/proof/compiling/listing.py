# SPDX-License-Identifier: Apache-2.0
"""List the translation units that an upstream's own JIT code would compile for a GPU (SM121 by default), for a given tree."""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.projects import UnitScript, known
from stack.proof.compiling import architecture as architectures
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places

ARCHITECTURE = "12.1a"
SASS_ARCHITECTURE = "sm_121a"


@dataclass(frozen=True, slots=True)
class Unit:
    """A source of a module, with the compiler flags from upstream's code (without program, source and output)."""

    module: str
    source: Path
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """The unit's name in series and reports."""
        return f"{self.module}/{self.source.name}"

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles the unit; other units use the host's compiler."""
        return self.source.suffix == ".cu"

    def compiled_for(self, architecture: str) -> "Unit":
        """Return the unit with flags for another GPU (`sm_90a`) than the listed one."""
        mine, other = (name.removeprefix("sm_") for name in (SASS_ARCHITECTURE, architecture))
        changed = (flag.replace(f"compute_{mine},code=sm_{mine}", f"compute_{other},code=sm_{other}") for flag in self.flags)
        return replace(self, flags=tuple(changed))


@dataclass(frozen=True, slots=True)
class Listing:
    """The units of a tree, and the script that listed them.

    `links` maps a module to its linker flags, or to a reason why there are none. `made` maps an expression to its modules, or to a
    reason. `unlisted` maps whatever could not be listed to a reason.
    """

    tree: Path
    work: Path
    units: tuple[Unit, ...]
    links: Mapping[str, tuple[str, ...] | str]
    made: Mapping[str, tuple[str, ...] | str]
    unlisted: Mapping[str, str]
    script: UnitScript

    def fingerprint(self, unit: Unit) -> str:
        """Hash the unit's inputs other than the tree's headers: flags, source, and generated files in its folder."""
        content = hashlib.sha256()
        for flag in unit.flags:
            content.update(self._without_places(flag.encode()) + b"\0")
        beside = sorted(unit.source.parent.glob("*.inc")) if self.work in unit.source.parents else []
        for file in (unit.source, *beside):
            content.update(self._without_places(file.read_bytes()) + b"\0")
        return content.hexdigest()

    def _without_places(self, text: bytes) -> bytes:
        return text.replace(str(self.tree).encode(), b"TREE").replace(str(self.work).encode(), b"WORK")


def check_folder(cache: Path) -> None:
    """Refuse a cache folder with a blank in its path: a JIT joins its flags by blanks, and some contain that path.

    Raises:
        StackError: The path has a blank.

    """
    if any(blank in str(cache) for blank in " \t"):
        raise StackError(f"the cache folder {cache} has a blank in its name", "set STACK_CACHE to a folder without one")


def for_gpu(tree: Path, expressions: Sequence[str], python: Path, toolkit: Toolkit, cache: Path, architecture: str) -> Listing:
    """List the units for a GPU: those that the JIT names for it, and those for SM121 that it does not, with changed flags.

    A JIT leaves out modules that it offers to certain GPUs only. Their sources may compile for others.

    Raises:
        StackError: As `of` does.

    """
    base = of(tree, expressions, python, toolkit, cache)
    if architecture == SASS_ARCHITECTURE:
        return base
    own = of(tree, expressions, python, toolkit, cache, architecture)
    listed = {unit.name for unit in own.units}
    other = tuple(unit.compiled_for(architecture) for unit in base.units if unit.name not in listed)
    return replace(
        own,
        units=(*own.units, *other),
        links={**base.links, **own.links},
        made={name: _joined(base.made.get(name), made) for name, made in own.made.items()},
    )


def _joined(base: tuple[str, ...] | str | None, own: tuple[str, ...] | str) -> tuple[str, ...] | str:
    """Return the modules that an expression makes for either GPU; a reason only if it makes none for both."""
    if isinstance(own, str):
        return own if base is None or isinstance(base, str) else base
    return own if base is None or isinstance(base, str) else tuple(dict.fromkeys((*own, *base)))


def of(
    tree: Path,
    expressions: Sequence[str],
    python: Path,
    toolkit: Toolkit,
    cache: Path,
    architecture: str = SASS_ARCHITECTURE,
) -> Listing:
    """List the units of a tree's JIT, including modules that Python expressions make in addition to its ahead-of-time build.

    Raises:
        StackError: No project plug-in knows a JIT of the tree, the upstream's code cannot be imported, or the cache folder's path has a blank.

    """
    check_folder(cache)
    script = _script(tree)
    other = [architecture] if architecture != SASS_ARCHITECTURE else []
    inputs = json.dumps([str(tree), sorted(expressions), str(python), str(toolkit.home), script.path.read_text(), *other])
    work = cache / "compiling" / hashlib.sha256(inputs.encode()).hexdigest()[:16]
    answer = work / "units.json"
    with places.lock(work):
        if not answer.exists():
            work.mkdir(parents=True, exist_ok=True)
            text = _ask(script, tree, work, expressions, python, toolkit, architecture)
            part = answer.with_suffix(".part")
            part.write_text(text)
            part.rename(answer)
    content = json.loads(answer.read_text())
    units = [_unit(unit) for unit in content["units"]]
    # Modules for other devices have other architectures in their flags.
    here = {unit.module for unit in units if any(_names(flag, architecture) for flag in unit.flags)}
    return Listing(
        tree,
        work,
        tuple(unit for unit in units if unit.module in here),
        {name: flags if isinstance(flags, str) else tuple(flags) for name, flags in content["links"].items()},
        {name: made if isinstance(made, str) else tuple(made) for name, made in content["made"].items()},
        content["unlisted"],
        script,
    )


def _names(flag: str, architecture: str) -> bool:
    """Return whether a flag names an architecture: `sm_90` is another one than `sm_90a`."""
    return re.search(rf"{architecture}(?![0-9a-z])", flag) is not None


def _script(tree: Path) -> UnitScript:
    script = known.units(lambda path: (tree / path).read_bytes() if (tree / path).is_file() else None)
    if script is None:
        raise StackError(f"{tree.name}: no installed plug-in knows a JIT of this tree", "see docs/plug-ins.md")
    return script


def _ask(
    script: UnitScript,
    tree: Path,
    work: Path,
    expressions: Sequence[str],
    python: Path,
    toolkit: Toolkit,
    architecture: str,
) -> str:
    # Some generators iterate over sets: a fixed hash seed makes the list of a tree reproducible.
    environment = toolkit.environment | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [str(python), str(script.path), str(tree), str(work), architectures.number(architecture)]
    done = subprocess.run(
        command, input=json.dumps(sorted(expressions)), env=environment, cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise StackError(f"{tree.name}: the JIT's modules cannot be listed ({lines[0]})", f"`{' '.join(command)}` shows more")
    return done.stdout


def _unit(said: Mapping[str, object]) -> Unit:
    command, source = said["command"], said["source"]
    assert isinstance(command, list) and isinstance(source, str)
    arguments = command[1:]
    output = arguments.index("-o")
    flags = arguments[:output] + arguments[output + 2 :]
    return Unit(str(said["module"]), Path(source), tuple(flag for flag in flags if flag not in ("-c", source)))
