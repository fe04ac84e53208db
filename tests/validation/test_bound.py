# SPDX-License-Identifier: Apache-2.0
"""Which cases of a verdict fall out by which change: exactly those that depend on what was changed."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stack.deploy import recipes
from stack.model import stack as stacks
from stack.model.inputs import CODE
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome, Verdict
from stack.validation import bound, laboratory
from stack.validation.suite import RunOptions, ValidatedSubject, run

from ..model.factories import CACHE, FILES, GATING, PINS, SHA256, patch, write

MARLIN = "vllm/model_executor/layers/fused_moe/marlin.py"
HEADER = "flashinfer/experimental/mxfp4_decode/include/flashinfer/mxfp4/experts.cuh"
FORMATS, EMULATED = "kernels/formats/e4m3-decode/torch", "kernels/moe/mxfp4-decode-emulated/m=1"
VLLMS, OURS = "kernels/moe/marlin/m=1", "kernels/moe/mxfp4-decode/m=1"
COMPILED = "kernels/compile/cache/read-caches"
SERVED, OTHER, SERIES = "serve/cpu-fp32/starts", "serve/cpu-mxfp4/starts", "serve/series/gating/proved"
ROOT = Path(__file__).parents[2]
SPEED, QUALITY = "bench/pp512", "quality/mxfp4"
SERVERS = {SERVED, OTHER, SERIES, SPEED, QUALITY}
NUMERICS = {FORMATS, EMULATED, VLLMS, OURS}
ALL = {*NUMERICS, COMPILED, *SERVERS}


def case(name: str, *needs: str, **more: object) -> Case:
    return replace(Case(name, Outcome.PASSED, needs=needs), **more)  # type: ignore[arg-type]


CASES = (
    case(FORMATS, "cpu", used=bound.used(FORMATS, ("cpu",), [])),
    case(EMULATED, "cpu", used=bound.used(EMULATED, ("cpu",), [])),
    case(VLLMS, "sm90", used=bound.used(VLLMS, ("sm90",), [MARLIN, "vllm/_version.py", "vllm/_C.abi3.so"])),
    case(OURS, "sm90", used=bound.used(OURS, ("sm90",), ["flashinfer/__init__.py"])),
    case(COMPILED, "cpu", used=bound.compiled(["csrc/experts.cu", HEADER])),
    *(case(name, "cpu") for name in (SERVED, OTHER, SERIES, SPEED, QUALITY)),
)


def of(path: str, *, digit: str = "2", subject: str = "Change it") -> bytes:
    """A patch of a file, whose blob it says by one digit."""
    return patch(subject, digit).replace(b"one.py", path.encode()).replace(b"2" * 40, digit.encode() * 40)


def stack_with(root: Path, **changed: bytes | str) -> Stack:
    """A stack with a patch for each upstream; other files by `vllm`, `flashinfer`, `cutlass`, `why`, `pins`."""
    files: dict[str, bytes | str] = {
        **FILES,
        "stacks/gating/vllm/gate-kernels.patch": changed.get("vllm", of("vllm/harmony/parser.py")),
        "stacks/cache/flashinfer/read-caches.patch": changed.get("flashinfer", of("tests/test_caches.py")),
        "stacks/cache/cutlass/add-a-tile.patch": changed.get("cutlass", of("media/tile.svg")),
        "stacks/gating/series.toml": GATING.replace("The upstream", str(changed.get("why", "The upstream"))),
        "stacks/cache/series.toml": str(changed.get("cache", CACHE)),
        "pins.toml": str(changed.get("pins", PINS)),
    }
    write(root, files)
    return stacks.load(root)


@pytest.fixture
def made(tmp_path: Path) -> Verdict:
    stack = stack_with(tmp_path / "made")
    return run(stack, lambda _: CASES, ValidatedSubject(), RunOptions(tmp_path / "verdict.json"))


def fallen(stack: Stack, verdict: Verdict) -> dict[str, str]:
    found = {one.name: bound.fallen(stack, one, verdict.inputs) for one in verdict.cases}
    return {name: str(one) for name, one in found.items() if one is not None}


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"vllm": of("vllm/harmony/parser.py", subject="Say it otherwise")}, set()),
        ({"why": "Upstream still"}, set()),
        ({"pins": PINS.replace(f"sha256:{SHA256}", f"sha256:{'6' * 64}")}, set()),
        ({"vllm": of("vllm/harmony/parser.py", digit="3")}, SERVERS),
        ({"vllm": of(MARLIN)}, {VLLMS, *SERVERS}),
        ({"vllm": of("csrc/moe/marlin.cu")}, {VLLMS, *SERVERS}),
        ({"flashinfer": of(HEADER)}, {EMULATED, OURS, COMPILED, *SERVERS}),
        ({"flashinfer": of("csrc/other.cu")}, {OURS, *SERVERS}),
        ({"flashinfer": of("flashinfer/jit/moe.py")}, {OURS, COMPILED, *SERVERS}),
        ({"cutlass": of("include/cutlass/tile.hpp")}, {OURS, *SERVERS}),
        ({"pins": PINS.replace("b" * 40, "d" * 40)}, {EMULATED, OURS, COMPILED, *SERVERS}),
        ({"pins": PINS.replace("c" * 40, "d" * 40)}, {EMULATED, OURS, COMPILED, *SERVERS}),
        ({"pins": PINS.replace("aaaaaaa", "bbbbbbb")}, {FORMATS, EMULATED, VLLMS, OURS, *SERVERS}),
    ],
)  # fmt: skip
def test_a_change_of_the_stack(tmp_path: Path, made: Verdict, changed: Mapping[str, bytes | str], names: set[str]) -> None:
    assert fallen(stack_with(tmp_path / "now", **changed), made).keys() == names


def test_what_a_series_expects_of_a_compiler(tmp_path: Path, made: Verdict) -> None:
    now = stack_with(tmp_path / "now")
    line = 'file     = "flashinfer/read-caches.patch"\n'
    wanted = CACHE.replace(line, f'{line}compiles = [{{ unit = "experts/*", sass = ["QMMA"] }}]\n')
    write(tmp_path / "now", {"stacks/cache/series.toml": wanted})
    assert fallen(now, made) == {}
    assert fallen(stacks.load(tmp_path / "now"), made).keys() == {COMPILED}
    write(tmp_path / "now", {"stacks/cache/series.toml": CACHE})
    line = 'file     = "vllm/gate-kernels.patch"\n'
    write(tmp_path / "now", {"stacks/gating/series.toml": GATING.replace(line, f'{line}compiles = [{{ unit = "x/*" }}]\n')})
    assert fallen(stacks.load(tmp_path / "now"), made) == {}


def edited(folder: Path, path: str, old: str, new: str) -> None:
    places = (folder / "stack/validation", folder / "data", folder.parent / "made")
    (file,) = (place / path for place in places if (place / path).exists())
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package and its data that may be changed."""
    folder = tmp_path / "code"
    ignored = shutil.ignore_patterns("__pycache__", "verdicts", "*.lock")
    shutil.copytree(bound.HERE.parent, folder / "stack", ignore=ignored)
    shutil.copytree(bound.DATA, folder / "data", ignore=ignored)
    monkeypatch.setattr(bound, "HERE", folder / "stack/validation")
    monkeypatch.setattr(bound, "DATA", folder / "data")
    caches: list[Callable[[], None]] = [one.cache_clear for one in (bound._code, bound._data, bound._file)]
    for clear in caches:
        clear()
    yield folder
    for clear in caches:
        clear()


@pytest.mark.parametrize(
    ("path", "old", "new", "names"),
    [
        ("numerics/judging.py", "LEAN_BAR = 0.5", "LEAN_BAR = 0.6", NUMERICS),
        ("kernels/laboratory/emulated/machine.cpp", "#include", "\n#include", NUMERICS),
        ("kernels/laboratory/mxfp4.py", '"""', '"""More: ', NUMERICS),
        ("kernels.py", "128, 32, 128", "128, 64, 128", {COMPILED}),
        ("recipes/cpu-fp32.toml", "\n", "\n# more\n", {SERVED}),
        ("serve/checks.py", '"""', '"""More: ', {SERVED, OTHER, SERIES}),
        ("bench/suite.py", '"""', '"""More: ', {SPEED}),
        ("quality/choices.py", '"""', '"""More: ', {QUALITY}),
        ("suite.py", '"""', '"""More: ', set()),
        ("gates.toml", "least = 170", "least = 171", set()),
    ],
)  # fmt: skip
def test_a_change_of_the_validation(tmp_path: Path, here: Path, path: str, old: str, new: str, names: set[str]) -> None:
    stack = stack_with(tmp_path / "made")
    shutil.copytree(laboratory.folder(ROOT), laboratory.folder(stack.root), ignore=shutil.ignore_patterns("__pycache__"))
    made = run(stack, lambda _: CASES, ValidatedSubject(), RunOptions(tmp_path / "verdict.json"))
    assert fallen(stack, made) == {}
    edited(here, path, old, new)
    for one in (bound._code, bound._data, bound._file):
        one.cache_clear()
    found = fallen(stack, made)
    assert found.keys() == names
    named = path if path.startswith("kernels/") else f"validation/{path}"
    assert {*found.values()} <= {f"{CODE}: {named} differs"}


def test_a_recipe_depends_on_its_base(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "FOLDER", here / "data/recipes")
    (here / "data/recipes/cpu-other.toml").write_text('title = "Other"\nbase = "cpu-fp32"\n')
    found = bound._data("serve/cpu-other/starts", ROOT)
    assert {"validation/recipes/cpu-other.toml", "validation/recipes/cpu-fp32.toml"} <= set(found)
    assert "validation/recipes/cpu-other.toml" not in bound._data("serve/cpu-fp32/starts", ROOT)


def test_the_benchmark_of_kernels_depends_on_the_laboratory(tmp_path: Path) -> None:
    before = bound.code(stacks.load(ROOT), "bench/kernels/all").content
    assert {"kernels/laboratory/decoding/figures.py", "validation/numerics/judging.py"} <= set(before)
    without = bound.code(stack_with(tmp_path), "bench/kernels/all").content
    assert not any(path.startswith("kernels/") for path in without)


def test_the_input_is_named_with_its_files(tmp_path: Path, made: Verdict) -> None:
    now = stack_with(tmp_path / "now", flashinfer=of(HEADER), vllm=of(MARLIN))
    found = fallen(now, made)
    assert found[EMULATED] == found[COMPILED] == f"flashinfer: {HEADER} differs"
    assert found[VLLMS] == f"vllm: {MARLIN} differs"
    assert found[SERVED] == f"vllm: vllm/harmony/parser.py, {MARLIN} differ"


def test_a_case_that_names_too_little_does_not_count(tmp_path: Path, made: Verdict) -> None:
    stack = stacks.load(tmp_path / "made")
    whole = {one.name: one for one in made.cases}
    fewer = {**made.inputs, (one := bound.inputs.of_upstream(stack, "flashinfer", ())).digest: one}
    for name in (OURS, EMULATED):
        forged = replace(whole[name], inputs={**whole[name].inputs, "flashinfer": one.digest})
        assert str(bound.fallen(stack, forged, fewer)) == "flashinfer: it names fewer files than its kernel depends on"
    assert str(bound.fallen(stack, replace(whole[OURS], inputs={}), made.inputs)) == "it does not name its inputs"
    rest = {kind: digest for kind, digest in whole[OURS].inputs.items() if kind != "vllm"}
    assert str(bound.fallen(stack, replace(whole[OURS], inputs=rest), made.inputs)) == "vllm: it does not name this input"


def test_a_resumed_run_keeps_the_inputs(tmp_path: Path, made: Verdict) -> None:
    stack = stacks.load(tmp_path / "made")
    again = run(
        stack,
        lambda job: filter(lambda one: job.wants(one.name), CASES),
        ValidatedSubject(),
        RunOptions(tmp_path / "verdict.json", resume=True),
    )
    assert again.inputs == made.inputs
    assert again.cases == made.cases
