# SPDX-License-Identifier: Apache-2.0
"""The inputs of each case: parts of the carried trees, and the validation's own files that judge it.

A case of a verdict names these inputs. It counts for a stack at hand as long as they are the same there, whatever else changed.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from stack.deploy.data import DATA
from stack.model import inputs
from stack.model.ids import Sha256
from stack.model.inputs import CODE, Input, Selection
from stack.model.stack import Stack
from stack.model.verdict import Case
from stack.proof import compiling, sources
from stack.validation.numerics import ON_CPU
from stack.validation.numerics.emulated.building import HEADERS
from stack.validation.pack.recipes import RECIPES

HERE = Path(__file__).parent
_OWN = ("validation", "deploy", "base/bounded_http.py")
"""The parts of this package that judge: the validation, and what it shares with serving."""
COMPILED = ("csrc/*", "cmake/*", "CMakeLists.txt", "setup.py", "pyproject.toml", "requirements/*", "vllm/*.json")
"""The files of vLLM that its compiled operators are made of, and the tables that its kernels read."""
JIT = ("flashinfer/jit/*", "flashinfer/compilation_context.py", "*.jinja")
"""The files of FlashInfer that write the sources and flags of a unit."""
_GENERATED = "vllm/_version.py"
_WHOLE = ("kernels/grouped/*", "kernels/sanitizer/*", "*decode*", "*flashinfer*", "kernels/quantizer/*")
"""Kernels of FlashInfer that a process does not import by itself, or compiles when it runs: its whole tree counts."""
_COMPILES = "kernels/compile/"
_SOURCES = ("*.h", "*.hpp", "*.cpp", "*.cu", "*.cuh")


@dataclass(frozen=True, slots=True)
class Fallen:
    """Why a case does not count any more: the input (empty where it names none), and what of it is other."""

    input: str
    why: str

    def __str__(self) -> str:
        return f"{self.input}: {self.why}" if self.input else self.why


def used(name: str, needs: Sequence[str], imports: Sequence[str]) -> Mapping[str, Selection]:
    """Select the files of each upstream that a kernel depends on, by the modules that its process has imported."""
    vllm = [path for path in imports if path.startswith("vllm/") and path.endswith(".py") and path != _GENERATED]
    imported = any(path.startswith("flashinfer/") for path in imports)
    return {"vllm": (*vllm, *COMPILED) if vllm else (inputs.PIN,), "flashinfer": None if imported else least(name, needs)}


def compiled(read: Sequence[str]) -> Mapping[str, Selection]:
    """Select the files that a unit of FlashInfer depends on, by the compiler's dependency file."""
    return {"vllm": (), "flashinfer": (*read, *JIT)}


def least(name: str, needs: Sequence[str]) -> Selection:
    """Return the files of FlashInfer that a kernel's case depends on in any case: a verdict that names fewer does not count."""
    if ON_CPU in name:
        return (f"{HEADERS}/*",)
    on_gpu = any(need.startswith("sm") for need in needs)
    return None if on_gpu and any(fnmatchcase(name, pattern) for pattern in _WHOLE) else ()


def of(stack: Stack, case: Case) -> Mapping[str, Input]:
    """Describe the inputs of a case that has just run, by kind.

    Raises:
        StackError: a diff of the stack cannot be read.

    """
    trees = {name: inputs.of_upstream(stack, name, case.used.get(name)) for name in _upstreams(stack)}
    return {**trees, CODE: code(stack, case.name)}


def fallen(stack: Stack, case: Case, listed: Mapping[Sha256, Input]) -> Fallen | None:
    """Say which input of a recorded case is another at hand, None where all are the same.

    Raises:
        StackError: a diff of the stack cannot be read.

    """
    if not case.inputs:
        return Fallen("", "it does not name its inputs")
    for kind in (*_upstreams(stack), CODE):
        if kind not in case.inputs:
            return Fallen(kind, "it does not name this input")
        before = listed[case.inputs[kind]]
        if kind == "flashinfer" and not _enough(before.files, least(case.name, case.needs)):
            return Fallen(kind, "it names fewer files than its kernel depends on")
        now = code(stack, case.name) if kind == CODE else inputs.of_upstream(stack, kind, before.files)
        if now.digest != before.digest:
            names = [*inputs.changed(before, now)]
            return Fallen(
                kind, f"{inputs.shown(names)} {'is' if len(names) == 1 else 'are'} other" if names else "other files count"
            )
    return None


def code(stack: Stack, name: str) -> Input:
    """Describe the validation's own files that judge a case."""
    files = {**_code(_judges(name)), **_data(name)}
    if name.startswith(_COMPILES):
        expected = [one.compiles for one in stack.series if one.name == name.split("/")[2]]
        files["(compiles)"] = _hash(repr(expected).encode())
    if name.startswith("serve/series/"):
        files |= _series(stack, name.split("/")[2])
    return inputs.of_code(files)


def _upstreams(stack: Stack) -> list[str]:
    return [pin.upstream for pin in stack.pins if pin.within is None]


def _enough(named: Selection, wanted: Selection) -> bool:
    """Whether a selection has all of another."""
    return named is None or (wanted is not None and set(wanted) <= set(named))


def _judges(name: str) -> tuple[str, ...]:
    """Name the modules of the validation that judge a case."""
    suite, recipe = (*name.split("/"), "")[:2]
    if name.startswith(_COMPILES):
        return ("kernels.py",)
    if suite == "kernels":
        return ("numerics/__main__.py", "emulation.py")
    if name.startswith("bench/kernels/"):
        return ("decoding/__main__.py",)
    if suite in ("serve", "bench") and (recipe in _PACKED or fnmatchcase(name, "bench/*/*/*")):
        return ("pack/checks.py", "pack/server.py", "pack/recipes.py", "pack/speeds.py", "pack/target_runner.py")
    models = ("model/__main__.py",) if suite in ("serve", "quality") else ()  # started as a process, not imported
    return (f"{suite}/suite.py", *models) if suite in _SUITES else ()


_SUITES = ("serve", "bench", "quality")
_PACKED = frozenset(one.name for one in RECIPES)
_PLUMBING = frozenset({"suite.py", "numerics_protocol.py", "machine.py", "python_env.py", "bound.py"})
"""Modules that start what judges and write what it found."""


@functools.cache
def _code(modules: tuple[str, ...]) -> Mapping[str, str]:
    """Hash the modules and what they import of the validation, by path."""
    plumbing = [HERE / name for name in _PLUMBING]
    own = [HERE.parent / name for name in _OWN]
    found = sources.closure([HERE / one for one in modules], [HERE.parents[1]], plumbing, own)
    return {_relative(path): _file(path) for path in found if path.suffix == ".py"}


@functools.cache
def _data(name: str) -> Mapping[str, str]:
    """Hash the files of other kinds that judge a case, or say how it ran, by path."""
    suite, recipe = (*name.split("/"), "")[:2]
    found: list[Path] = []
    if name.startswith(_COMPILES):
        found = [*Path(compiling.__file__).parent.glob("*.py")]
    elif suite == "kernels":
        found = [HERE / "requirements.txt", *(path for end in _SOURCES for path in (HERE / "numerics").rglob(end))]
    elif suite == "serve" and (DATA / f"recipes/{recipe}.toml").is_file():
        found = [HERE / "requirements.txt", DATA / f"recipes/{recipe}.toml"]
    elif suite in ("bench", "quality"):
        found = [*(DATA / "texts").glob("*.txt")]
    return {_relative(path): _file(path) for path in sorted(found)}


def _series(stack: Stack, name: str) -> Mapping[str, str]:
    """Hash the proofs of a series, and the recipe whose server shows its effect."""
    from stack.validation.serve.suite import EFFECT_BY  # noqa: PLC0415  (it imports much)

    if name not in (one.name for one in stack.series):
        return {"(series)": "there is none of this name"}
    proofs = {path: _file(stack.root / path) for path in stack.get(name).proves if (stack.root / path).is_file()}
    return {**proofs, **(_data(f"serve/{EFFECT_BY[name]}/") if name in EFFECT_BY else {})}


def _relative(path: Path) -> str:
    """A file's name as it is in the repository, wherever the packages are installed."""
    package = HERE.parent
    if path.is_relative_to(DATA):
        return f"validation/{path.relative_to(DATA).as_posix()}"
    return path.relative_to(package).as_posix() if path.is_relative_to(package) else path.name


@functools.lru_cache(maxsize=4096)
def _file(path: Path) -> str:
    return _hash(path.read_bytes())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
