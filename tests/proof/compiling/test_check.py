# SPDX-License-Identifier: Apache-2.0
"""`stack compile-check` on a small upstream, with the real compiler and disassembler."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.cli import cli
from stack.model.series import Compiles
from stack.model.stack import load
from stack.proof.compiling import check, toolkit
from stack.proof.compiling.check import CompileRequest, Report, UnitOutcome
from stack.store import cache as places

from . import small
from .small import HEADER, PACKED, WIDE, WORDS

pytestmark = pytest.mark.slow
compiles = pytest.mark.kernels

PYTHON = Path(sys.executable)
KERNELS = "copy/copy_kernels.cu"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.build(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has only the compiler: that is the user's, with what was downloaded."""
    folder = tmp_path_factory.mktemp("cache")
    toolkit.find(places.root())
    (folder / "compilers").symlink_to(places.root() / "compilers")
    return folder


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "root"))


Check = Callable[..., Report]


@pytest.fixture(name="checked")
def _checked(root: Path, cache: Path) -> Check:
    def checked(**asked: object) -> Report:
        with Stores(load(root), Place(cache, "git")) as stores:
            return check.check(stores, replace(CompileRequest(python=PYTHON), **asked))  # type: ignore[arg-type]

    return checked


def edit(root: Path, path: str, old: str, new: str) -> None:
    file = root / "stacks" / path
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


@compiles
def test_what_patches_touch_compiles_and_has_its_instructions(checked: Check) -> None:
    report = checked()
    found = {(one.unit, one.instantiation): one for one in report.results}
    # The instantiation that is named, and the first of all for those patches that name none.
    assert set(found) == {(KERNELS, "INSTANTIATE_COPY(float, 4)")}
    one = found[KERNELS, "INSTANTIATE_COPY(float, 4)"]
    assert sorted(ref.path for ref in one.patches) == [PACKED, WIDE, HEADER]
    assert (one.state, one.problem, report.sound) == (UnitOutcome.COMPILES, "", True)
    assert one.named == {"LDG.128": 1, "STG.E.128": 1}
    assert one.instructions["EXIT"] == 1
    (kernel,) = one.kernels
    assert (kernel.stack, kernel.spills, kernel.wide, kernel.at_once) == (0, 0, 1, 1)
    assert 8 <= kernel.registers <= 32
    assert one.seconds > 0
    assert 10**7 < one.peak < 10**10
    assert [ref.path for ref in report.idle] == [WORDS]
    assert report.unlisted == {"gen_broken_module": "OSError: no network"}


@compiles
def test_another_gpu_is_compiled_for_by_name(checked: Check) -> None:
    (one,) = checked(architectures=("sm_80",)).results
    assert (one.state, one.named, one.kernels[0].wide) == (UnitOutcome.COMPILES, {"LDG.128": 1, "STG.E.128": 1}, 1)
    with pytest.raises(StackError, match=r"^nvcc \d+\.\d+ does not know sm_20: it knows sm_75, sm_80, .*sm_121; newer ones"):
        checked(architectures=("sm_80", "sm_20"))


@compiles
def test_several_gpus_at_once_each_with_what_the_jit_lists_for_it(root: Path, checked: Check, cache: Path) -> None:
    """A module that upstream's JIT has for one GPU only is found for that one; others get the flags changed."""
    report = checked(architectures=("sm_121a", "sm_90a", "sm_121a"), everything=True)
    assert report.sound
    found = {(one.unit, one.architecture) for one in report.results if one.instantiation is None}
    assert found == {(KERNELS, "sm_121a"), (KERNELS, "sm_90a"), ("hopper/hopper.cu", "sm_90a")}
    named = next(one for one in report.results if one.architecture == "sm_90a" and one.unit == KERNELS and one.instantiation)
    assert named.named == {"LDG.128": 1, "STG.E.128": 1}
    ask = ["--root", str(root), "--cache", str(cache), "compile-check", "--source", "git", "--python", sys.executable]
    shown = CliRunner().invoke(cli, [*ask, "--arch", "sm_90a", "--arch", "sm_121a"])
    assert shown.exit_code == 0, shown.output
    assert f"compiles  sm_90a  {KERNELS}" in shown.output
    assert f"compiles  sm_121a  {KERNELS}" in shown.output
    answer = json.loads(CliRunner().invoke(cli, [*ask, "--arch", "sm_90a", "--json"]).stdout)
    assert (answer["lane"], {one["architecture"] for one in answer["units"]}) == (None, {"sm_90a"})


@compiles
def test_a_lanes_patches_are_compiled(root: Path, cache: Path) -> None:
    run = ["--root", str(root), "--cache", str(cache)]
    assert CliRunner().invoke(cli, [*run, "lane", "add", "old"]).exit_code == 0
    own = root / "stacks/lanes/old/copies/flashinfer/name-it-twice.patch"
    own.parent.mkdir(parents=True)
    text = (root / "stacks/copies/flashinfer/name-it-twice.patch").read_text()
    own.write_text(text.replace("+namespace upstream = up;", "+namespace upstream = down;"))
    ask = [*run, "compile-check", "--source", "git", "--python", sys.executable]
    assert CliRunner().invoke(cli, ask).exit_code == 0
    broken = CliRunner().invoke(cli, [*ask, "--lane", "old"])
    assert (broken.exit_code, "include/up/../up/detail.cuh(9): error: " in broken.output) == (1, True)


@compiles
def test_the_pristine_tree_lacks_what_the_patch_brings(checked: Check) -> None:
    report = checked(pristine=True)
    assert [(one.state, one.problem) for one in report.results] == [
        (UnitOutcome.LACKS, "no LDG.128 and no STG.E.128 in its code for sm_121a")
    ]
    assert not report.sound


@compiles
def test_an_instruction_that_is_not_there(root: Path, checked: Check) -> None:
    edit(root, "copies/series.toml", '"LDG.128", "STG.E.128"', '"LDG.128", "QMMA.SF"')
    (one,) = checked().results
    assert (one.state, one.problem) == (UnitOutcome.LACKS, "no QMMA.SF in its code for sm_121a")
    assert one.named == {"LDG.128": 1, "QMMA.SF": 0}


@compiles
@pytest.mark.parametrize(
    ("patch", "old", "new", "error"),
    [
        (HEADER, "+namespace upstream = up;", "+namespace upstream = down;", "include/up/../up/detail.cuh(9): error: "),
        (PACKED, "+// packed", "+packed", "3rdparty/cutlass/include/tile/pack.h(6): error: "),
        (
            HEADER,
            "+namespace upstream = up;",
            '+#include "gone.h"',
            "include/up/../up/detail.cuh:9:10: fatal error: gone.h: No such file",
        ),
    ],
    ids=["header", "vendored header", "include"],
)
def test_a_patch_that_breaks_the_source(root: Path, checked: Check, patch: str, old: str, new: str, error: str) -> None:
    edit(root, patch, old, new)
    report = checked()
    assert [one.state for one in report.results] == [UnitOutcome.FAILS]
    assert report.results[0].problem.startswith(error)
    assert not report.sound


@compiles
def test_everything_that_is_touched_is_compiled_whole(checked: Check) -> None:
    report = checked(everything=True)
    whole = {one.unit: [ref.path for ref in one.patches] for one in report.results if one.instantiation is None}
    # The Python patch changes the flags of the module's units; nothing touches other/other.cu.
    assert whole == {KERNELS: [WIDE, HEADER, PACKED]}
    assert [one.instantiation for one in report.results].count(None) == 1
    assert report.sound
    twice = next(one for one in report.results if one.instantiation is None)
    assert twice.instructions["EXIT"] == 2


@compiles
def test_a_module_that_python_makes(root: Path, checked: Check) -> None:
    makes = "flashinfer.jit.copying.Wrapper('only_named')"
    edit(
        root,
        "copies/series.toml",
        'file = "flashinfer/name-it-twice.patch"',
        f"""file = "flashinfer/name-it-twice.patch"
        compiles = [{{ unit = "only_*/named.cu", makes = "{makes}" }}]""",
    )
    found = {one.unit: one for one in checked().results}
    assert found["only_named/named.cu"].state is UnitOutcome.COMPILES
    assert [ref.path for ref in found["only_named/named.cu"].patches] == [HEADER]


@compiles
def test_of_the_units_that_a_pattern_means_the_first_that_is_touched(root: Path, checked: Check) -> None:
    makes = "flashinfer.jit.copying.Wrapper('only_named')"
    edit(
        root,
        "copies/series.toml",
        'file = "flashinfer/name-it-twice.patch"',
        f"""file = "flashinfer/name-it-twice.patch"
        compiles = [{{ unit = "only_*/named.cu", makes = "{makes}" }}, {{ unit = "o*/*.cu" }}]""",
    )
    report = checked()  # other/other.cu comes first, and is not touched
    assert {one.unit: one.state for one in report.results} == {
        KERNELS: UnitOutcome.COMPILES,
        "only_named/named.cu": UnitOutcome.COMPILES,
    }


@compiles
@pytest.mark.parametrize(
    ("entry", "state", "problem"),
    [
        ('unit = "other/other.cu"', UnitOutcome.UNTOUCHED, "the patch does not touch it"),
        ('unit = "copy/none.cu"', UnitOutcome.MISSING, "there is no such unit; there is copy/copy_kernels.cu, copy/copy.cpp"),
        (f'unit = "{KERNELS}", instantiation = "double"', UnitOutcome.MISSING, "there is no instantiation with 'double' in it"),
        ('unit = "a/b.cu", makes = "flashinfer.nothing()"', UnitOutcome.MISSING, "flashinfer.nothing() fails: AttributeError"),
        ('unit = "a/b.cu", makes = "1 + 1"', UnitOutcome.MISSING, "1 + 1 fails: it makes no module"),
    ],
)
def test_a_name_that_is_wrong(root: Path, checked: Check, entry: str, state: UnitOutcome, problem: str) -> None:
    edit(
        root,
        "copies/series.toml",
        'file = "flashinfer/name-it-twice.patch"',
        f"""file = "flashinfer/name-it-twice.patch"
        compiles = [{{ {entry} }}]""",
    )
    report = checked()
    (one,) = [one for one in report.results if one.state is not UnitOutcome.COMPILES]
    assert (one.state, [ref.path for ref in one.patches]) == (state, [HEADER])
    assert one.problem.startswith(problem)
    assert not report.sound


@compiles
def test_a_unit_that_no_patch_names(checked: Check) -> None:
    (one,) = checked(unit=Compiles(None, "other/*", sass=("STG",))).results
    assert (one.unit, one.state, one.named, one.patches) == ("other/other.cu", UnitOutcome.COMPILES, {"STG": 1}, ())


@compiles
def test_compiled_code_of_other_upstreams_is_said_to_be_left_out(
    root: Path, checked: Check, cache: Path, tmp_path: Path
) -> None:
    # Without its JIT, the upstream is any other project.
    remote = small.Remote(tmp_path / "plain")
    base = remote.commit({"csrc/kernel.cu": b"int a;\n", "up.py": b"A = 1\n"})
    remote.tag("v1.0")
    remote.commit({"csrc/kernel.cu": b"int b;\n"}, "Change the kernel")
    remote.commit({"up.py": b"A = 2\n"}, "Change the module")
    series = root / "stacks/plain"
    small.export(remote, base, series / "plain")
    names = "".join(
        f'[[patch]]\nupstream = "plain"\nfile = "plain/{one.name}"\n' for one in sorted((series / "plain").iterdir())
    )
    (series / "series.toml").write_text(f'title = "t"\nwhy = "w"\nstate = "pending"\n{names}')
    (root / "stacks/stack.toml").write_text('series = ["copies", "plain"]\n')
    with (root / "pins.toml").open("a") as pins:
        pins.write(f'[plain]\ngit = "{remote.url}"\ntag = "v1.0"\ncommit = "{base}"\n')
        pins.write('archive = { package = "plain", version = "1.0" }\n')
    report = checked(series=("plain",))
    assert [(ref.path, path) for ref, path in report.uncovered] == [("plain/plain/change-the-kernel.patch", "csrc/kernel.cu")]
    assert [ref.path for ref in report.idle] == ["plain/plain/change-the-module.patch"]
    assert (report.results, report.sound) == ((), True)
    said = CliRunner().invoke(cli, ["--root", str(root), "--cache", str(cache), "compile-check", "plain", "--source", "git"])
    assert (
        "csrc/kernel.cu is built by upstream's CMake: `stack build wheels plain --plan` says how to compile it" in said.output
    )


@compiles
def test_the_verb(root: Path, cache: Path) -> None:
    ask = ["--root", str(root), "--cache", str(cache), "compile-check", "--source", "git", "--python", sys.executable]
    shown = CliRunner().invoke(cli, ask)
    assert shown.exit_code == 0, shown.output
    assert "1 LDG.128, 1 STG.E.128" in shown.output
    assert f"{WORDS}: touches no unit" in shown.output
    answer = json.loads(CliRunner().invoke(cli, [*ask, "--pristine", "--json"]).stdout)
    assert (answer["sound"], answer["idle"], answer["uncovered"]) == (False, [WORDS], [])
    assert answer["compiler"].startswith("nvcc ")
    (unit,) = answer["units"]
    assert (unit["state"], unit["sass"]) == ("lacks", {"LDG.128": 0, "STG.E.128": 0})
    assert unit["instructions"]["EXIT"] == 1
    (kernel,) = unit["kernels"]
    assert (kernel["stack"], kernel["spills"], kernel["wide"], kernel["at_once"]) == (0, 0, 0, 0)
    odd = CliRunner().invoke(cli, [*ask, "--arch", "90"])
    assert (odd.exit_code, "--arch 90: a GPU is named as the compiler does: sm_80, sm_90a" in odd.output) == (2, True)
    failed = CliRunner().invoke(cli, [*ask, "--unit", "other/*", "--sass", "LDG.128"])
    assert (failed.exit_code, "no LDG.128 in its code" in failed.output) == (1, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--sass", "QMMA"], "--instantiation and --sass go with --unit"),
        (["copies", "--unit", "other/*"], "--unit stands in place of SERIES"),
        (["--unit", "other/*", "--sass", "qmma"], "--sass qmma: an instruction is named as the disassembler does"),
    ],
)
def test_wrong_usage(root: Path, args: list[str], said: str) -> None:
    shown = CliRunner().invoke(cli, ["--root", str(root), "compile-check", *args])
    assert shown.exit_code == 2
    assert said in shown.output


def test_a_cache_folder_with_a_blank(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "my cache"
    with Stores(load(root), Place(place, "git")) as stores, pytest.raises(StackError, match="has a blank in its name"):
        check.check(stores, CompileRequest(python=PYTHON))
    assert not (place / "compilers").exists()


@compiles
def test_an_upstream_that_cannot_be_imported(root: Path, cache: Path) -> None:
    edit(root, WIDE, '+FLAGS = ["-DWIDE"]', '+FLAGS = ["-DWIDE"')
    with Stores(load(root), Place(cache, "git")) as stores, pytest.raises(StackError, match=r"cannot be listed \(SyntaxError"):
        check.check(stores, CompileRequest(python=PYTHON))
