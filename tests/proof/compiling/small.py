# SPDX-License-Identifier: Apache-2.0
"""A small upstream with the parts of FlashInfer's JIT that `stack compile-check` asks, a vendored library, and a stack on both.

Its one kernel copies floats. What the patches change: one the flags (in Python), one a header, one a vendored header, one a text.
"""

from pathlib import Path

from stack.store import git
from tests.store.factories import Remote

CORE = """
from pathlib import Path

from flashinfer.jit import env


class Registry:
    def __init__(self):
        self.specs = {}

    def get_all_specs(self):
        return dict(self.specs)


jit_spec_registry = Registry()


class JitSpec:
    def __init__(self, name, sources, flags, number="121a"):
        self.name, self.sources, self.flags, self.number = name, sources, flags, number
        jit_spec_registry.specs.setdefault(name, self)

    @property
    def ninja_path(self):
        return env.FLASHINFER_GEN_SRC_DIR / f"{self.name}.ninja"

    def write_ninja(self):
        env.FLASHINFER_GEN_SRC_DIR.mkdir(parents=True, exist_ok=True)
        self.ninja_path.write_text("name = " + self.name + "\\nldflags = -shared $\\n    -L$cuda_home/lib64 $\\n    -lcudart -lcuda\\n")

    def build_and_load(self):
        raise RuntimeError("there is no GPU")

    def get_compile_commands(self):
        flags = ["-std=c++17", f"-gencode=arch=compute_{self.number},code=sm_{self.number}", "--compiler-options=-fPIC", *self.flags]
        flags += [f"-I{path}" for path in (env.FLASHINFER_INCLUDE_DIR, *env.CUTLASS_INCLUDE_DIRS)]
        program = {".cu": "nvcc", ".cpp": "c++"}
        return [
            {"file": str(one), "command": f"{program[one.suffix]} -c {one} {' '.join(flags if one.suffix == '.cu' else ['-fPIC'])} -o {one}.o"}
            for one in self.sources
        ]
"""
ENV = """
import os
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data"
FLASHINFER_INCLUDE_DIR = DATA / "include"
FLASHINFER_CSRC_DIR = DATA / "csrc"
CUTLASS_INCLUDE_DIRS = [DATA / "cutlass" / "include"]
FLASHINFER_GEN_SRC_DIR = Path(os.environ["FLASHINFER_WORKSPACE_BASE"]) / "generated"
"""
COPY = """
import os

from flashinfer.jit import env
from flashinfer.jit.core import JitSpec

FLAGS = []
KINDS = ["float", "int"]


def gen_copy_module():
    folder = env.FLASHINFER_GEN_SRC_DIR / "copy"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "copy_kernels.cu"
    lines = [f"INSTANTIATE_COPY({kind}, 4)" for kind in KINDS]
    source.write_text("#include <up/copy.cuh>\\n" + "\\n".join(lines) + "\\n")
    return JitSpec("copy", [source, env.FLASHINFER_CSRC_DIR / "copy.cpp"], FLAGS)


def gen_other_module():
    return JitSpec("other", [env.FLASHINFER_CSRC_DIR / "other.cu"], [])


def gen_hopper_module():
    if "9.0a" not in os.environ["FLASHINFER_CUDA_ARCH_LIST"]:
        raise RuntimeError("No supported CUDA architectures found")
    return JitSpec("hopper", [env.FLASHINFER_CSRC_DIR / "hopper.cu"], [], "90a")


def gen_broken_module():
    raise OSError("no network")


def gen_named_module(name):
    return JitSpec(name, [env.FLASHINFER_CSRC_DIR / "named.cu"], [])


class Wrapper:
    def __init__(self, name):
        gen_named_module(name).build_and_load()
        raise SystemError("never reached")
"""
AOT = """
from flashinfer.jit.copying import gen_broken_module, gen_copy_module, gen_hopper_module, gen_other_module


def register_default_modules():
    return len([gen_copy_module(), gen_other_module(), gen_broken_module(), gen_hopper_module()])
"""
COPY_CUH = """
#pragma once
#include "../up/detail.cuh"

template <typename T, int N>
__global__ void copy(T const* from, T* to) {
  up::Pack<T, N> const* packed = reinterpret_cast<up::Pack<T, N> const*>(from);
#ifdef WIDE
  reinterpret_cast<up::Pack<T, N>*>(to)[threadIdx.x] = packed[threadIdx.x];
#else
  for (int i = 0; i < N; ++i) to[threadIdx.x * N + i] = from[threadIdx.x * N + i];
#endif
}

#define INSTANTIATE_COPY(T, N) template __global__ void copy<T, N>(T const*, T*);
"""
DETAIL = """
#pragma once
#include <tile/pack.h>

namespace up {
template <typename T, int N>
using Pack = tile::Pack<T, N>;
}
"""
PACK = """
#pragma once

namespace tile {
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};
}
"""
OTHER = "__global__ void other(int* to) { *to = 1; }\n"
HOPPER = "#include <up/detail.cuh>\n__global__ void hopper(int* to) { *to = 1; }\n"
NAMED = "#include <up/detail.cuh>\n__global__ void named(int* to) { *to = 1; }\n"
PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "flashinfer-python"
dynamic = ["version"]
[tool.setuptools]
packages = ["flashinfer", "flashinfer.jit"]
[tool.setuptools.dynamic]
version = { attr = "flashinfer._build_meta.__version__" }
"""
FILES = {
    "pyproject.toml": PYPROJECT,
    "flashinfer/__init__.py": "",
    "flashinfer/_build_meta.py": '__version__ = "1.0"\n',
    "flashinfer/aot.py": AOT,
    "flashinfer/jit/__init__.py": "",
    "flashinfer/jit/core.py": CORE,
    "flashinfer/jit/env.py": ENV,
    "flashinfer/jit/copying.py": COPY,
    "include/up/copy.cuh": COPY_CUH,
    "include/up/detail.cuh": DETAIL,
    "csrc/copy.cpp": "int copies() { return 1; }\nchar const* place() { return __FILE__; }\n",
    "csrc/other.cu": OTHER,
    "csrc/named.cu": NAMED,
    "csrc/hopper.cu": HOPPER,
    "README.md": "Copies.\n",
}
WIDE, HEADER, WORDS, PACKED = (
    f"copies/{path}.patch"
    for path in ("flashinfer/load-16-bytes-at-once", "flashinfer/name-it-twice", "flashinfer/say-more", "cutlass/pack-them")
)
CHANGES = {
    "Load 16 bytes at once": ("flashinfer/jit/copying.py", COPY.replace("FLAGS = []", 'FLAGS = ["-DWIDE"]')),
    "Name it twice": ("include/up/detail.cuh", DETAIL + "namespace upstream = up;\n"),
    "Say more": ("README.md", "Copies floats.\n"),
}
NAMES = """
[[patch]]
upstream = "flashinfer"
file = "flashinfer/load-16-bytes-at-once.patch"
compiles = [{ unit = "copy/copy_kernels.cu", instantiation = "float,  4", sass = ["LDG.128", "STG.E.128"] }]
[[patch]]
upstream = "flashinfer"
file = "flashinfer/name-it-twice.patch"
[[patch]]
upstream = "flashinfer"
file = "flashinfer/say-more.patch"
[[patch]]
upstream = "cutlass"
file = "cutlass/pack-them.patch"
"""


def build(place: Path) -> Path:
    """Make the remotes and the stack; returns the stack's folder."""
    library = Remote(place / "library")
    vendored = library.commit({"include/tile/pack.h": PACK.encode()})
    remote = Remote(place / "remote")
    base = remote.commit({path: text.encode() for path, text in FILES.items()}, submodules={"3rdparty/cutlass": vendored})
    remote.tag("v1.0")
    series = place / "root/stacks/copies"
    for subject, (path, text) in CHANGES.items():
        remote.commit({path: text.encode()}, subject)
    export(remote, base, series / "flashinfer")
    library.commit({"include/tile/pack.h": PACK.replace("struct alignas", "// packed\nstruct alignas").encode()}, "Pack them")
    export(library, vendored, series / "cutlass")
    (series / "series.toml").write_text(f'title = "t"\nwhy = "w"\nstate = "pending"\n{NAMES}')
    (place / "root/stacks/stack.toml").write_text('series = ["copies"]\n')
    (place / "root/pins.toml").write_text(
        f'[flashinfer]\ngit = "{remote.url}"\ntag = "v1.0"\ncommit = "{base}"\n'
        'archive = { package = "flashinfer-python", version = "1.0" }\n'
        f'[cutlass]\ngit = "{library.url}"\ncommit = "{vendored}"\n'
        'within = { upstream = "flashinfer", path = "3rdparty/cutlass" }\n'
    )
    return place / "root"


def export(remote: Remote, base: str, folder: Path) -> None:
    """Write the commits since a base as patch files, named after their subjects."""
    options = ["--full-index", "--no-stat", "--no-signature", "--zero-commit", "--no-numbered", f"{base}..HEAD"]
    git.run(["format-patch", "--quiet", *options, "-o", str(folder)], cwd=remote.path)
    for file in folder.iterdir():
        file.rename(folder / f"{file.stem.partition('-')[2].lower()}.patch")
