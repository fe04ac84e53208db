# SPDX-License-Identifier: Apache-2.0
"""Compile FlashInfer's SM120 kernels for SM90 into one cached library. Our headers replace the instructions that SM90 lacks."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model.series import Compiles
from stack.proof import series_proofs
from stack.proof.compiling import check, compiler, instantiations, jobs, layers, toolkit
from stack.proof.compiling.listing import Unit
from stack.proof.compiling.selection import Selection
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places
from stack.validation.numerics.tiles import TILES, Tile

UPSTREAM = "flashinfer"
UNIT = "gemm_sm120/group_gemm_mxfp4_groupwise_e4m3_bf16_sm120.cu"
ARCHITECTURE = "sm_90a"
FOLDER = Path(__file__).parent
_INCLUDE = FOLDER / "include"
_ENTRY = FOLDER / "entry.cpp"
_WAITS = "-DCUTLASS_ENABLE_GDC_FOR_SM90=1"
"""Enables the wait of a kernel for its predecessor on SM90, which FlashInfer's own flag enables on SM120."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The inputs of the library: FlashInfer's generated source with all instantiations, flags for SM90, tree and compiler."""

    unit: Unit
    tree: Path
    toolkit: Toolkit

    def of(self, tile: Tile, cache: Path) -> Path:
        """Cut the source down to one instantiation.

        Raises:
            StackError: FlashInfer has none of that tile.

        """
        text = self.unit.source.read_text(encoding="utf-8")
        for instantiation in instantiations.of(text):
            if tile.instantiation in instantiation.text:
                return check.cut(self.unit.source, instantiation, cache)
        raise StackError(f"{self.unit.name} has no tile {tile.name}", "emulate tiles that FlashInfer instantiates")


def library(stores: Stores, python: Path | None = None) -> Path:
    """Return the library. The first call compiles it, which takes minutes, and 6 GB for each compiler process.

    `python` is an interpreter that can import FlashInfer. Without it, the environment of the proofs is used.

    Raises:
        StackError: there is no compiler, or a kernel does not compile because it needs a feature that is not emulated.

    """
    inputs = sources(stores, python)
    cache = stores.place.cache
    target = cache / "compiling" / f"{FOLDER.name}-{_fingerprint(inputs)}.so"
    with places.lock(target):
        if not target.exists():
            work = target.with_suffix("")
            work.mkdir(exist_ok=True)
            objects = list(_compiled(inputs, work, stores))
            part = target.with_suffix(places.PART)
            _linked(objects, part)
            part.rename(target)
            shutil.rmtree(work)
    return target


def sources(stores: Stores, python: Path | None = None) -> Sources:
    """Collect the inputs of the library from the carried tree.

    Raises:
        StackError: the tree, the compiler or FlashInfer's list of units is not available.

    """
    tools = toolkit.find(stores.place.cache, stores.tell)
    asking = python or series_proofs.interpreter(stores, series_proofs.proofs(stores, ())[0], stores.tell)
    layered = layers.of(stores, stores.stack.pins.get(UPSTREAM))
    chosen = Selection(stores, layered, [Compiles(None, unit=UNIT)], asking, tools, everything=False, pristine=False)
    cache = stores.place.cache
    unit = next((one for one in chosen.listing.units if one.name == UNIT), None)
    if unit is None:
        raise StackError(f"FlashInfer's JIT no longer has {UNIT}", "name the unit with its MXFP8 x MXFP4 kernels for SM120")
    look_at_tiles(unit.source.read_text(encoding="utf-8"))
    return Sources(replace(unit, flags=_flags(unit, cache, chosen.listing.tree, asking, tools)), chosen.listing.tree, tools)


def look_at_tiles(source: str) -> None:
    """Check that every tile that FlashInfer instantiates is emulated.

    Raises:
        StackError: a tile is not.

    """
    emulated = [tile.instantiation for tile in TILES]
    for instantiation in instantiations.of(source):
        if not any(tile in instantiation.text for tile in emulated):
            raise StackError(
                f"FlashInfer instantiates a tile that is not emulated: {instantiation.text:.100}", "add it to TILES"
            )


def _flags(unit: Unit, cache: Path, tree: Path, python: Path, tools: Toolkit) -> tuple[str, ...]:
    # The compiler takes the last prefix that matches, and the cache contains some of the other folders: it must come first.
    mapped = {
        cache: "cache",
        tree: "source",
        FOLDER: "emulation",
        python.absolute().parents[1]: "environment",
        tools.home: "cuda",
    }
    renamed = [f"-Xcompiler=-ffile-prefix-map={place}={name}" for place, name in mapped.items()]
    return (f"-I{_INCLUDE}", *unit.compiled_for(ARCHITECTURE).flags, _WAITS, *renamed)


def _fingerprint(inputs: Sources) -> str:
    """Hash everything that determines the library: every compiled file, the flags and the compiler's version."""
    files, error = compiler.dependencies(inputs.unit, inputs.toolkit, inputs.tree)
    if error:
        raise StackError(
            f"{inputs.unit.name} does not compile for {ARCHITECTURE}: {error[:300]}", "the pinned headers have changed"
        )
    # Flags with paths are left out: the same sources in another folder make the same library.
    flags = [flag for flag in inputs.unit.flags if "/" not in flag]
    contents = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in (*files, _ENTRY))
    made_of = [flags, [tile.name for tile in TILES], inputs.toolkit.version, contents]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]


def _compiled(inputs: Sources, work: Path, stores: Stores) -> Iterator[Path]:
    """Compile the objects of the library in parallel and yield them; objects of an interrupted run are reused."""
    wanted = {tile.name: inputs.of(tile, stores.place.cache) for tile in TILES} | {"entry": _ENTRY}
    pool = ThreadPoolExecutor(jobs.named() or jobs.that_fit())
    try:
        running = [pool.submit(_object, inputs, source, work / f"{name}.o") for name, source in wanted.items()]
        for number, (name, each) in enumerate(zip(wanted, running, strict=True), 1):
            stores.tell(f"compiling {number} of {len(wanted)} for {ARCHITECTURE}: {name}")
            yield each.result()
    finally:
        # An interrupt also reaches the running compilers. Jobs that still wait must not start after it.
        pool.shutdown(cancel_futures=True)


def _object(inputs: Sources, source: Path, target: Path) -> Path:
    if not target.exists():
        part = target.with_suffix(f".{os.getpid()}{places.PART}")
        run = compiler.compile_unit(inputs.unit, source, part, inputs.toolkit, inputs.tree)
        if run.error:
            raise StackError(
                f"{target.stem} does not compile for {ARCHITECTURE}: {run.error[:300]}", "the pinned headers have changed"
            )
        part.rename(target)
    return target


def _linked(objects: list[Path], target: Path) -> None:
    """Link the objects. CUDA's runtime stays unresolved: the process that loads the library provides it."""
    command = [*compiler.cxx(), "-shared", "-Wl,-s", *map(str, sorted(objects)), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"the linker failed: {done.stderr.strip().splitlines()[0][:300]}", "check g++")
