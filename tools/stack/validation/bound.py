# SPDX-License-Identifier: Apache-2.0
"""Determine the inputs of each case: parts of the carried trees, and the validation's own files that judge it.

A case of a verdict names these inputs. It counts for another stack as long as they are the same there, whatever else changed.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from stack.deploy import recipes
from stack.deploy.data import DATA
from stack.model import inputs
from stack.model.ids import Sha256
from stack.model.inputs import CODE, Input, Selection
from stack.model.stack import Stack
from stack.model.verdict import Case
from stack.proof import sources
from stack.validation import laboratory
from stack.validation.numerics import HEADERS, ON_CPU
from stack.validation.pack import case_names
from stack.validation.pack.recipes import RECIPES

HERE = Path(__file__).parent
_OWN = ("validation", "deploy", "base/bounded_http.py")
"""The parts of this package that judge cases: the validation, and the modules that it shares with serving."""
COMPILED = ("csrc/*", "cmake/*", "CMakeLists.txt", "setup.py", "pyproject.toml", "requirements/*", "vllm/*.json")
"""The files of vLLM from which its compiled operators are built, and the tables that its kernels read."""
JIT = ("flashinfer/jit/*", "flashinfer/compilation_context.py", "*.jinja")
"""The files of FlashInfer that write the sources and flags of a unit."""
_GENERATED = "vllm/_version.py"
_WHOLE = ("kernels/grouped/*", "kernels/sanitizer/*", "*decode*", "*flashinfer*", "kernels/quantizer/*")
"""Cases that depend on FlashInfer's whole tree: the process compiles kernels as it runs, or uses them without importing them."""
_COMPILES = "kernels/compile/"
_SOURCES = ("*.h", "*.hpp", "*.cpp", "*.cu", "*.cuh")


@dataclass(frozen=True, slots=True)
class Fallen:
    """Why a case does not count any more: the input that differs (empty if the case names none), and what differs in it."""

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
    """Return the files of FlashInfer that a kernel's case depends on at least; a verdict that names fewer does not count.

    None stands for the whole tree, an empty tuple for no file.
    """
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
    """Find the first input of a recorded case that differs in this stack; None if all are the same.

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
                kind, f"{inputs.shown(names)} {'differs' if len(names) == 1 else 'differ'}" if names else "other files count"
            )
    return None


def code(stack: Stack, name: str) -> Input:
    """Describe the validation's own files that judge a case."""
    files = {**_code(_judges(name), stack.root.resolve()), **_data(name, stack.root.resolve())}
    if name.startswith(_COMPILES):
        expected = [series.compiles for series in stack.series if series.name == name.split("/")[2]]
        files["(compiles)"] = _hash(repr(expected).encode())
    if name.startswith("serve/series/"):
        files |= _series(stack, name.split("/")[2])
    return inputs.of_code(files)


def _upstreams(stack: Stack) -> list[str]:
    return [pin.upstream for pin in stack.pins if pin.within is None]


def _enough(named: Selection, wanted: Selection) -> bool:
    """Return whether a selection contains another; None stands for the whole tree."""
    return named is None or (wanted is not None and set(wanted) <= set(named))


def _judges(name: str) -> tuple[str, ...]:
    """Name the modules of the validation that judge a case."""
    suite, recipe = (*name.split("/"), "")[:2]
    if name.startswith(_COMPILES):
        return ("kernels.py",)
    if suite == "kernels":
        return ("numerics/__main__.py", f"{laboratory.PLACE}/sm120_on_sm90/compiling.py")
    if name.startswith("bench/kernels/"):
        return (f"{laboratory.PLACE}/decoding/__main__.py",)
    if name == case_names.BANDWIDTH:
        return (f"{laboratory.PLACE}/target/bandwidth.py",)
    if suite in ("serve", "bench") and (recipe in _PACKED or fnmatchcase(name, "bench/*/*/*")):
        return ("pack/recipes.py", f"{laboratory.PLACE}/target/runner.py")
    models = ("model/__main__.py",) if suite in ("serve", "quality") else ()  # started as a process, not imported
    return (f"{suite}/suite.py", *models) if suite in _SUITES else ()


_SUITES = ("serve", "bench", "quality")
_PACKED = frozenset(recipe.name for recipe in RECIPES)
_PLUMBING = frozenset({"suite.py", "numerics_protocol.py", "machine.py", "python_env.py", "bound.py"})
"""Modules that only start processes and write results: a change to them leaves cases valid."""


@functools.cache
def _code(modules: tuple[str, ...], root: Path) -> Mapping[str, str]:
    """Hash modules, and all modules of the validation and of the stack's laboratory that they import, by path."""
    plumbing = [HERE / name for name in _PLUMBING]
    own = [*(HERE.parent / name for name in _OWN), laboratory.folder(root)]
    begin = [(root if module.startswith(laboratory.PLACE) else HERE) / module for module in modules]
    paths = sources.closure(
        (path for path in begin if path.is_file()), [HERE.parents[1], root / laboratory.HOME], plumbing, own
    )
    return {_relative(path, root): _file(path) for path in paths if path.suffix == ".py"}


@functools.cache
def _data(name: str, root: Path) -> Mapping[str, str]:
    """Hash the files other than modules that judge a case, or determine how it ran, by path."""
    suite, recipe = (*name.split("/"), "")[:2]
    paths: list[Path] = []
    if name.startswith(_COMPILES):
        paths = [*(HERE.parent / "proof/compiling").glob("*.py"), HERE.parent / "vllm_project/jit_units.py"]
    elif suite == "kernels":
        paths = [HERE / "requirements.txt", *(path for end in _SOURCES for path in (HERE / "numerics").rglob(end))]
        paths += (path for end in _SOURCES for path in laboratory.folder(root).rglob(end))
    elif suite == "serve" and (DATA / f"recipes/{recipe}.toml").is_file():
        base = recipes.load(recipe).base
        paths = [HERE / "requirements.txt", *(DATA / f"recipes/{each}.toml" for each in (recipe, base) if each is not None)]
    elif suite in ("bench", "quality"):
        paths = [*(DATA / "texts").glob("*.txt")]
    return {_relative(path, root): _file(path) for path in sorted(paths)}


def _series(stack: Stack, name: str) -> Mapping[str, str]:
    """Hash the proofs of a series, and the recipe whose server shows its effect."""
    from stack.validation.serve.suite import EFFECT_BY  # noqa: PLC0415  (it imports much)

    if name not in (series.name for series in stack.series):
        return {"(series)": "there is none of this name"}
    proofs = {path: _file(stack.root / path) for path in stack.get(name).proves if (stack.root / path).is_file()}
    return {**proofs, **(_data(f"serve/{EFFECT_BY[name]}/", stack.root.resolve()) if name in EFFECT_BY else {})}


def _relative(path: Path, root: Path) -> str:
    """Name a file by its path in the repository, wherever the packages are installed."""
    package = HERE.parent
    if path.is_relative_to(laboratory.folder(root)):
        return path.relative_to(root).as_posix()
    if path.is_relative_to(DATA):
        return f"validation/{path.relative_to(DATA).as_posix()}"
    return path.relative_to(package).as_posix()


@functools.lru_cache(maxsize=4096)
def _file(path: Path) -> str:
    return _hash(path.read_bytes())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
