# SPDX-License-Identifier: Apache-2.0
"""Build a program that measures variants of the decode kernels next to the carried ones. It needs a GPU and nothing else.

    PYTHONPATH=tools:kernels python -m laboratory.variants.building PROGRAM [--architecture sm_90a] [--variant NAME=FOLDER[,FOLDER …]] …
    ./PROGRAM [LAYERS [REPLAYS [NAME …]]]                # on a machine with a GPU of that architecture

A NAME limits the measurement: a kind of kernels, `experts` or `dense`, a number of tokens, or `all` for all experts at once. `whole`
leaves out each of the experts' two launches in turn. With `late`, no launch begins before its predecessor has ended. `spark` leaves 48
multiprocessors and 99 KB of shared memory, as a DGX Spark has; blocks that only wait occupy the others.

A variant is the carried kernels with some headers replaced by the *.cuh files in its folder, for example `moe_rows.cuh` with another
number of warps. If several folders have a header, the last one counts. The program runs all variants, or the named ones, and prints a
line for each kind of kernels and number of tokens: microseconds per layer, the share of a copy's bandwidth, and the distance of the
output from the first variant's. BF16 sums in another order differ by some 3e-3. Measure one kind alone for long runs: the GPU's clock
falls with its power, and slows the next kind.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof.compiling import jobs
from stack.proof.compiling.toolkit import Toolkit, find
from stack.store import cache
from stack.validation.kernels import carried_kernels
from stack.validation.numerics import HEADERS

ROOT = Path(__file__).parents[3]
SOURCES = Path(__file__).parent
CARRIED = "carried"
_FLAGS = ("-O3", "-std=c++17", "-use_fast_math")
"""FlashInfer's own flags."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = frozenset({CARRIED, "mxfp4", "experts", "dense", "all", "whole", "late", "spark"})
"""Names that a variant cannot have: the carried kernels, their namespace, and the program's other arguments."""


def headers(folder: Path, beside: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return a variant's headers by name: those of its folder, and for the rest those of `beside`.

    Raises:
        StackError: the folder has no header that the others have.

    """
    own = {path.name: path.read_bytes() for path in folder.glob("*.cuh")}
    if not own.keys() & beside.keys():
        raise StackError(f"{folder} has none of the kernels' headers", f"put some of them there: {', '.join(sorted(beside))}")
    return {**beside, **own}


def laid_out(folders: Sequence[Path], carried: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the headers of a variant of several folders; of two that have a header, the later counts. Raises as `headers`."""
    found = dict(carried)
    for folder in folders:
        found = headers(folder, found)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the program; return 2 if this is not possible."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--architecture", default="sm_90a", help="of the GPU (default: %(default)s)")
    about = "also measure the kernels with headers replaced by those of these folders"
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=FOLDER[,FOLDER …]", help=about)
    options = parser.parse_args(arguments)
    folders: dict[str, list[Path]] = {}
    for given in options.variant:
        name, _, listed = given.partition("=")
        named = listed.split(",")
        if (
            not _NAME.fullmatch(name)
            or name in folders.keys() | _TAKEN
            or not all(Path(folder or "?").is_dir() for folder in named)
        ):
            parser.error(
                f"{given!r} is not NAME=FOLDER: a new name in small letters, and a folder with headers (or several, with commas)"
            )
        folders[name] = [Path(folder) for folder in named]
    program = options.program.absolute()
    if program.is_dir() or not program.parent.is_dir():
        parser.error(f"{options.program} cannot be written: it is a folder, or its folder is not there")
    try:
        with Stores(load(ROOT), Place(cache.root())) as stores, tempfile.TemporaryDirectory() as work:
            toolkit = find(cache.root())
            carried = carried_kernels(stores)
            variants = {CARRIED: carried, **{name: laid_out(its, carried) for name, its in folders.items()}}
            objects = build(variants, options.architecture, Path(work), toolkit)
            nvcc(toolkit, Path(work), options.architecture, *map(str, objects), "-o", str(program))
    except StackError as cannot:
        print(f"decode_variants: {cannot}", file=sys.stderr)
        return 2
    print(f"{options.program}: {', '.join(variants)}")
    return 0


def build(variants: Mapping[str, Mapping[str, bytes]], architecture: str, work: Path, toolkit: Toolkit) -> list[Path]:
    """Compile the program and every variant in the folder `work`; return the objects to link.

    Raises:
        StackError: nvcc refuses a source.

    """
    (work / "variants.inc").write_text("".join(f"VARIANT({name})\n" for name in variants))
    for path in (SOURCES / name for name in ("variant.h", "variant.cu", "bench.cu")):
        (work / path.name).write_bytes(path.read_bytes())
    units: dict[str, tuple[str, ...]] = {"bench.o": ("bench.cu",)}
    for name, found in variants.items():
        lay_out(work / name, found)
        units[f"variant-{name}.o"] = ("variant.cu", f"-DNAME={name}", f"-Dmxfp4={name}_kernels", f"-I{name}")
    compiled = partial(nvcc, toolkit, work, architecture)
    with ThreadPoolExecutor(jobs.that_fit()) as pool:
        for running in [pool.submit(compiled, "-c", "-o", made, *arguments) for made, arguments in units.items()]:
            running.result()
    return [work / made for made in units]


def lay_out(folder: Path, found: Mapping[str, bytes]) -> None:
    """Write headers into a folder under the paths by which FlashInfer includes them."""
    place = folder / HEADERS.partition("include/")[2]
    place.mkdir(parents=True)
    for name, data in found.items():
        (place / name).write_bytes(data)


def nvcc(toolkit: Toolkit, work: Path, architecture: str, *arguments: str) -> None:
    """Run nvcc in the folder `work`.

    Raises:
        StackError: it fails.

    """
    command = [str(toolkit.nvcc), *_FLAGS, f"-arch={architecture}", *arguments]
    done = subprocess.run(
        command, cwd=work, env=toolkit.environment, check=False, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        error = next(
            (line for line in lines if "error" in line.lower() or "fatal" in line), lines[-1] if lines else "says nothing"
        )
        raise StackError(f"nvcc for {architecture}: {error}", "name another --architecture, or mend the variant")


if __name__ == "__main__":
    sys.exit(main())
