# SPDX-License-Identifier: Apache-2.0
"""A planted fault is judged again when anything changes that its result depends on, and only then."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from laboratory.emulated import building
from laboratory.emulated.building import CannotBuild
from laboratory.faults import planted
from laboratory.faults.decode_faults import FAULTS
from laboratory.faults.judges import QUANTIZE
from laboratory.faults.planted import Fault
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof import sources
from stack.store import cache as places
from stack.validation.kernels import carried_kernels
from tests import keeping
from tests.keeping import Keep

FAULT = next(Fault(*fault) for what, *fault in FAULTS if what == "the sign of zero")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kernels() -> dict[str, bytes]:
    with Stores(load(keeping.ROOT), Place(places.root())) as stores:
        return carried_kernels(stores)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return building.plan({}).machine(tmp_path_factory.mktemp("machine") / "built")


@dataclass(frozen=True, slots=True)
class Judging:
    """Judges a fault with an empty cache at first; `again` says whether it was built and judged, or kept."""

    kernels: Mapping[str, bytes]
    machine: Path
    keep: Keep

    def again(self, fault: Fault = FAULT, kernels: Mapping[str, bytes] | None = None, code: str = "") -> bool:
        plan = fault.planted(kernels or self.kernels)
        ran = []

        def judge() -> dict[str, object]:
            ran.append(plan)
            return {"said": fault.judged(plan, self.machine)}

        assert fault.says in self.keep({**fault.inputs(plan), "code": code}, judge)["said"][-1]
        return bool(ran)


@pytest.fixture
def judging(kernels: dict[str, bytes], machine: Path, keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judging:
    monkeypatch.setenv("STACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STACK_AGAIN", raising=False)
    one = Judging(kernels, machine, keep)
    assert one.again()
    assert not one.again()
    return one


def test_another_header_fault_or_judge_is_judged_again(judging: Judging) -> None:
    assert judging.again(kernels={**judging.kernels, QUANTIZE: judging.kernels[QUANTIZE] + b"// more\n"})
    assert judging.again(replace(FAULT, becomes="if (shift > 11) return sign - sign;"))
    assert judging.again(replace(FAULT, says="differ"[1:]))
    assert judging.again(code="other judges")
    assert not judging.again()


def test_a_header_that_does_not_go_in_changes_nothing(judging: Judging) -> None:
    assert not judging.again(kernels={**judging.kernels, "gemv.cuh": b"// another\n"})


@pytest.mark.parametrize("part", sorted(keeping.environment()))
def test_in_another_environment_it_is_judged_again(judging: Judging, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**keeping.environment(), part: "another"}
    monkeypatch.setattr(keeping, "environment", lambda: other)
    assert judging.again()
    assert not judging.again()


def test_the_environment_says_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ask: Callable[[], Mapping[str, str]] = keeping.environment.__wrapped__
    before = ask()
    assert all(before.values())
    monkeypatch.setattr(keeping, "version", lambda name: f"another {name}")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    changed = {name for name, said in ask().items() if said != before[name]}
    assert changed == {"numpy", "ml_dtypes", "variables"}


def test_another_compiler_or_flag_judges_again(judging: Judging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other-c++"
    other.write_text('#!/bin/sh\n[ "$1" = --version ] && echo other && exit\nexec c++ "$@"\n')
    other.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("CXX", str(other))
        assert judging.again()
    monkeypatch.setattr(building, "_KERNELS", (*building._KERNELS, "-O1"))
    assert judging.again()


def test_with_stack_again_it_is_judged_again(judging: Judging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACK_AGAIN", "1")
    monkeypatch.setattr(keeping, "_RUN", "another run")
    assert judging.again()
    assert not judging.again()  # once in a run


def test_a_run_that_did_not_end_is_not_kept(judging: Judging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = tmp_path / "killed-c++"
    killed.write_text('#!/bin/sh\n[ "$1" = --version ] && exec c++ "$@"\nkill -9 $$\n')
    killed.chmod(0o755)
    other = replace(FAULT, becomes="if (shift > 11) return sign - sign;")
    with monkeypatch.context() as patched:
        patched.setenv("CXX", str(killed))
        with pytest.raises(CannotBuild):
            judging.again(other)
    assert judging.again(other)
    # The answers about a fault that no judge refuses are not kept either.
    harmless = replace(FAULT, becomes=FAULT.was + " ")
    for _ in range(2):
        with pytest.raises(AssertionError, match="no judge says"):
            judging.again(harmless)


def test_nothing_of_the_library_is_left(judging: Judging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert judging.again(code="other judges")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "cache/emulated").exists()


def test_a_change_of_what_the_judges_import_is_another_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, module = keeping.ROOT, Path(planted.__file__)
    before = keeping.code(module)
    for file in sources.closure([module], (root / "tools", root / "kernels", root)):
        copy = tmp_path / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    monkeypatch.setattr(keeping, "ROOT", tmp_path)
    copied = tmp_path / module.relative_to(root)
    found = [keeping.code(copied)]
    assert found == [before]
    laboratory = "kernels/laboratory"
    for name in (
        "tools/stack/validation/numerics/judging.py", f"{laboratory}/emulated/machine.cpp", f"{laboratory}/mxfp4.py",
    ):  # fmt: skip
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        found.append(keeping.code(copied))
    assert len(set(found)) == 4


def test_without_a_code_the_module_of_the_test_counts(keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STACK_AGAIN", raising=False)
    measured, hashed = [], []

    def measure() -> dict[str, object]:
        measured.append(1)
        return {}

    def changed(*files: Path) -> str:
        hashed.append(files)
        return "another"

    keep({"of": "it"}, measure)
    keep({"of": "it"}, measure)
    assert len(measured) == 1
    monkeypatch.setattr(keeping, "code", changed)
    keep({"of": "it"}, measure)
    assert len(measured) == 2
    assert hashed == [(Path(__file__),)]
