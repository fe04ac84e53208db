# SPDX-License-Identifier: Apache-2.0
"""Tests that patches add to upstream's own test files: run with the patch, without its code, and on releases that lack them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.series import PatchRef
from stack.model.stack import load
from stack.proof import brought_tests, proof_module, series_proofs
from stack.proof.pytest_run import Servers
from stack.proof.runner import Runner
from stack.proof.series_proofs import PatchProof, ProofRequest, ProofState
from stack.store import git
from stack.store.results import AGAIN
from stack.upstreaming.trials import Trials

from ..store.factories import Remote

PYTHON = Path(sys.executable)
PROOF = """
import up

PROVES = {
    "up/add-a-sum.patch": ["tests/unit/test_up.py::test_total", "tests/unit/test_up.py::TestSign::test_negative"],
    "up/halve-it.patch": ["test_half", "tests/unit/test_half.py::test_half"],
}
UPSTREAM_TESTS = ["tests/unit/test_up.py"]

def test_half():
    assert up.half(4) == 2
"""
ONE = b"import up\nfrom tests.helper import five\n\ndef test_one():\n    assert up.ONE == 1\n"
TOTAL = ONE + b"\n\ndef test_total():\n    assert up.total(2, 3) == five()\n"
SIGN = b"\n\nclass TestSign:\n    def test_negative(self):\n        assert up.total(-1, 0) == -1\n"
HALF_TEST = (
    b"import pytest\nimport up\n\n@pytest.mark.parametrize('n', [4, 5])\ndef test_half(n):\n    assert up.half(n) == 2\n"
)
SUM, HALF = (PatchRef("sums", "up", f"up/{name}.patch") for name in ("add-a-sum", "halve-it"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack of two patches that bring tests: the first into a file that is there, with a helper; the second a new file.

    Release v2.0 has another test in that file, in the lines that the first patch adds to; v2.1 has a sum of its own.
    """
    monkeypatch.delenv(AGAIN, raising=False)
    remote = Remote(tmp_path / "remote")
    helper = {"tests/__init__.py": b"", "tests/unit/__init__.py": b"", "tests/helper.py": b"def five():\n    return 4\n"}
    base = remote.commit({"up.py": b"ONE = 1\n", "tests/unit/test_up.py": ONE, **helper})
    remote.tag("v1.0")
    total = {"up.py": b"ONE = 1\n\n\ndef total(a, b):\n    return a + b\n", "tests/unit/test_up.py": TOTAL + SIGN}
    remote.commit({**total, "tests/helper.py": b"def five():\n    return 5\n"}, "Add a sum")
    half = total["up.py"] + b"\n\ndef half(a):\n    return a // 2\n"
    remote.commit({"up.py": half, "tests/unit/test_half.py": HALF_TEST}, "Halve it")
    series = tmp_path / "root/stacks/sums"
    options = ["--full-index", "--no-stat", "--no-signature", "--zero-commit", "--no-numbered", f"{base}..HEAD"]
    git.run(["format-patch", "--quiet", *options, "-o", str(series / "up")], cwd=remote.path)
    for file, name in zip(sorted((series / "up").iterdir()), ("add-a-sum", "halve-it"), strict=True):
        file.rename(file.with_name(f"{name}.patch"))
    git.run(["checkout", "--quiet", "--detach", base], cwd=remote.path)
    remote.commit({"tests/unit/test_up.py": ONE + b"\n\ndef test_other():\n    assert up.ONE\n"}, "Test more")
    remote.tag("v2.0")
    remote.commit({"up.py": b"from operator import add as total  # noqa\n\nONE = 1\n"}, "Sum up")
    remote.tag("v2.1")
    tables = "".join(f'[[patch]]\nupstream = "up"\nfile = "up/{name}.patch"\n' for name in ("add-a-sum", "halve-it"))
    (series / "series.toml").write_text(
        f'title = "t"\nwhy = "w"\nstate = "pending"\nproves = ["proofs/test_up_proof.py"]\n{tables}'
    )
    (tmp_path / "root/stacks/stack.toml").write_text('series = ["sums"]\n')
    archive = 'archive = { package = "up", version = "1.0" }'
    (tmp_path / "root/pins.toml").write_text(f'[up]\ngit = "{remote.url}"\ntag = "v1.0"\ncommit = "{base}"\n{archive}\n')
    (tmp_path / "root/proofs").mkdir()
    (tmp_path / "root/proofs/test_up_proof.py").write_text(PROOF)
    return tmp_path / "root"


@pytest.fixture
def stores(root: Path, tmp_path: Path) -> Iterator[Stores]:
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        yield opened


def verdicts(stores: Stores, *, onto: tuple[str, ...] = ()) -> dict[PatchRef, PatchProof]:
    asked = ProofRequest(onto={"up": onto} if onto else {}, python=PYTHON)
    with Runner(stores) as runner:
        return {each.ref: each for each in series_proofs.verdicts(runner, asked)}


def the_proof(stores: Stores) -> proof_module.Proof:
    return proof_module.load(stores.stack.root / "proofs/test_up_proof.py", stores.stack)


def test_they_pass_with_the_patch_and_fail_without_its_code(stores: Stores) -> None:
    proved = verdicts(stores)
    assert {ref: (each.with_patch.state, each.without.state) for ref, each in proved.items()} == {
        SUM: (ProofState.PASSES, ProofState.FAILS),
        HALF: (ProofState.PASSES, ProofState.FAILS),
    }
    assert proved[SUM].without.reason == "tests/unit/test_up.py::test_total fails and 1 more"
    with Runner(stores) as runner:
        assert not list(series_proofs.idle(runner, ProofRequest(python=PYTHON)))


def test_a_tree_without_a_patch_has_its_tests_and_their_helpers(stores: Stores) -> None:
    objects = stores.objects("up")
    whole = proof_module.tree(stores, "up")
    less = proof_module.tree_without(stores, HALF, the_proof(stores).proves[HALF.file])
    assert {path for path, _, _ in objects.difference(whole, less)} == {"up.py"}
    # The second patch stands on the lines of the first one: what is left is upstream's tree, and the first one's tests.
    base = objects.tree_of(stores.base("up"))
    less = proof_module.tree_without(stores, SUM, the_proof(stores).proves[SUM.file])
    assert {path for path, _, _ in objects.difference(base, less)} == {"tests/unit/test_up.py", "tests/helper.py"}
    assert proof_module.tree_without(stores, SUM) == base


def test_a_run_names_them_with_their_file_and_keeps_the_result(stores: Stores) -> None:
    for cached in (False, True):
        with Runner(stores) as runner:
            run = runner.run(the_proof(stores), PYTHON, proof_module.tree(stores, "up"))
            assert run.good
            assert run.passed == (
                "test_half",
                "tests/unit/test_up.py::test_total",
                "tests/unit/test_up.py::TestSign::test_negative",
                *["tests/unit/test_half.py::test_half"] * 2,
            )
            assert run.cached is cached
            assert (runner.ran, runner.cached) == ((0, 2) if cached else (2, 0))


def test_on_a_release_their_files_are_merged_in(stores: Stores) -> None:
    """v2.0 has other lines where the patch adds its tests: the patched tree's file is taken."""
    proved = verdicts(stores, onto=("v2.0", "v2.1"))
    assert (proved[SUM].landed, proved[HALF].landed) == ("v2.1", None)
    with Trials(stores, "up", stores.obtain("up"), PYTHON) as trials:
        states = [trials.result(SUM, stores.obtain("up", tag).tree).state for tag in ("v2.0", "v2.1")]
    assert states == [ProofState.FAILS, ProofState.PASSES]


def test_a_file_that_the_patch_leaves_alone_is_refused(root: Path) -> None:
    file = root / "proofs/test_up_proof.py"
    file.write_text(PROOF.replace("tests/unit/test_half.py", "tests/unit/test_up.py"))
    with pytest.raises(StackError, match=r"tests/unit/test_up\.py, which sums/up/halve-it\.patch does not change"):
        proof_module.load(file, load(root))


def test_files_of_which_no_test_is_named_are_found(root: Path, stores: Stores) -> None:
    assert series_proofs.unnamed(stores, ()) == {}
    file = root / "proofs/test_up_proof.py"
    file.write_text(PROOF.replace('"test_half", "tests/unit/test_half.py::test_half"', '"test_half"'))
    assert series_proofs.unnamed(stores, ("sums",)) == {HALF: ("tests/unit/test_half.py",)}
    patch = stores.stack.patches[HALF]
    assert brought_tests.unnamed(patch, ["test_half"]) == ("tests/unit/test_half.py",)
    assert brought_tests.unnamed(patch, ["tests/unit/test_half.py::test_half"]) == ()


def test_of_a_landed_patch_the_modules_own_tests_go_on(root: Path) -> None:
    series = root / "stacks/sums/series.toml"
    text, _, _ = series.read_text().partition("[[patch]]")
    first = '[[patch]]\nupstream = "up"\nfile = "up/add-a-sum.patch"\n'
    series.write_text(text + first + '[[landed]]\nfile = "up/halve-it.patch"\nrelease = "v1.2"\nbefore = "v1.0"\n')
    (root / "stacks/sums/up/halve-it.patch").unlink()
    (merged,) = proof_module.load(root / "proofs/test_up_proof.py", load(root)).merged
    assert merged.tests == ("test_half",)


def test_a_test_is_known_by_its_whole_file_and_all_its_classes(tmp_path: Path) -> None:
    files = ("tests/test_up.py", "sub/tests/test_up.py", "tests/test_case.py")
    texts = {
        files[0]: "def test_it():\n    pass\n",
        files[
            1
        ]: "class TestA:\n    class TestB:\n        def test_it(self):\n            pass\n\ndef test_it():\n    assert False\n",
        files[2]: "import unittest\n\nclass UpCase(unittest.TestCase):\n    def test_it(self):\n        pass\n",
        **dict.fromkeys(("tests/__init__.py", "sub/__init__.py", "sub/tests/__init__.py"), ""),
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with Servers() as servers:
        run = servers.run(PYTHON, tmp_path, tmp_path, [str(tmp_path / file) for file in files], rootdir=tmp_path, files=files)
    assert run.passed == (f"{files[0]}::test_it", f"{files[1]}::TestA::TestB::test_it", f"{files[2]}::UpCase::test_it")
    assert run.failed == (f"{files[1]}::test_it",)
