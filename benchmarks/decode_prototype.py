# SPDX-License-Identifier: Apache-2.0
"""Kernels by products of bytes beside the carried decode kernels: a program that needs a GPU and nothing else.

    PYTHONPATH=tools:. python benchmarks/decode_prototype.py PROGRAM [--architecture sm_90a] [--variant NAME=DEFINES] …
    ./PROGRAM [LAYERS [REPLAYS [NAME …]]]        # on a machine with a GPU of that architecture

The prototype is `benchmarks/decode_prototype/`; docs/decode-kernels.md says how it works. A variant is the prototype with other macros,
as `--variant w16=PROTOTYPE_WARPS=16,PROTOTYPE_BLOCKS=1`; its files say which there are. The program prints a line for each kind of
kernels and number of tokens: microseconds a layer, the share of a copy's bandwidth, and how far what it computes is from what the
carried kernels do.
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

from stack.carry.bases import Place, Stores
from stack.model.errors import StackError
from stack.model.stack import load
from stack.proof.compiling import jobs
from stack.proof.compiling.toolkit import Toolkit, find
from stack.store import cache
from validation.kernels import carried_kernels
from validation.numerics.emulated.building import HEADERS

ROOT = Path(__file__).parents[1]
SOURCES = Path(__file__).parent / "decode_prototype"
CARRIED = "carried"
PROTOTYPE = "prototype"
_FLAGS = ("-O3", "-std=c++17", "-use_fast_math")
"""As FlashInfer has them."""
_MACRO = re.compile(r"PROTOTYPE_[A-Z_]+=\d+")


def headers(carried: Mapping[str, bytes]) -> dict[str, bytes]:
    """The prototype's headers and those of the carried tree that it needs, by name."""
    own = {path.name: path.read_bytes() for path in SOURCES.glob("*.cuh")}
    return {name: carried[name] for name in ("primitives.cuh", "choose.cuh")} | own


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the program; 2 where that cannot be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--architecture", default="sm_90a", help="of the GPU (default: %(default)s)")
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME=DEFINES", help="also the prototype with these macros"
    )
    options = parser.parse_args(arguments)
    variants: dict[str, list[str]] = {CARRIED: [], PROTOTYPE: ["-DPROTOTYPE"]}
    for given in options.variant:
        name, _, macros = given.partition("=")
        if not (name.isidentifier() and name not in variants and macros and all(map(_MACRO.fullmatch, macros.split(",")))):
            parser.error(f"{given!r} is no name of its own, = and macros as PROTOTYPE_WARPS=16")
        variants[name] = ["-DPROTOTYPE", *(f"-D{macro}" for macro in macros.split(","))]
    try:
        with Stores(load(ROOT), Place(cache.root())) as stores, tempfile.TemporaryDirectory() as work:
            build(carried_kernels(stores), variants, options.architecture, options.program, Path(work), find(cache.root()))
    except (StackError, subprocess.CalledProcessError) as cannot:
        said = cannot.stderr.strip() if isinstance(cannot, subprocess.CalledProcessError) else cannot
        print(f"decode_prototype: {said}", file=sys.stderr)
        return 2
    print(f"{options.program}: {', '.join(variants)}")
    return 0


def build(
    carried: Mapping[str, bytes],
    variants: Mapping[str, list[str]],
    architecture: str,
    program: Path,
    work: Path,
    toolkit: Toolkit,
) -> None:
    """Compile every variant and link them, in the folder `work`.

    Raises:
        subprocess.CalledProcessError: nvcc refuses something; its `stderr` says what.

    """
    lay_out(work / CARRIED, carried)
    lay_out(work / PROTOTYPE, headers(carried))
    (work / "variants.inc").write_text("".join(f"VARIANT({name})\n" for name in variants))
    for path in (SOURCES / name for name in ("variant.h", "variant.cu", "bench.cu")):
        (work / path.name).write_bytes(path.read_bytes())
    compile_ = partial(nvcc, toolkit, work, architecture)
    with ThreadPoolExecutor(jobs.that_fit()) as pool:
        compiled = [pool.submit(compile_, "-c", "bench.cu", "-o", "bench.o")]
        for name, flags in variants.items():
            kind = CARRIED if name == CARRIED else PROTOTYPE
            named = (f"-DNAME={name}", f"-Dmxfp4={name}_kernels", f"-I{kind}", *flags)
            compiled.append(pool.submit(compile_, "-c", "variant.cu", "-o", f"variant-{name}.o", *named))
        for one in compiled:
            one.result()
    compile_("bench.o", *(f"variant-{name}.o" for name in variants), "-o", str(program.resolve()))


def lay_out(folder: Path, found: Mapping[str, bytes]) -> None:
    """Write headers as FlashInfer has them, to be included from the folder."""
    place = folder / HEADERS.removeprefix("include/")
    place.mkdir(parents=True)
    for name, data in found.items():
        (place / name).write_bytes(data)


def nvcc(toolkit: Toolkit, work: Path, architecture: str, *arguments: str) -> None:
    """Run nvcc in the folder `work`.

    Raises:
        subprocess.CalledProcessError: it refuses something.

    """
    command = [str(toolkit.nvcc), *_FLAGS, f"-arch={architecture}", *arguments]
    subprocess.run(command, cwd=work, env=toolkit.environment, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
