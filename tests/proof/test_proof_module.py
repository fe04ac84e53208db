# SPDX-License-Identifier: Apache-2.0
"""Proofs, run for real: a small upstream, two patches, and pytest in a process of its own."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.series import PatchRef
from stack.model.stack import load
from stack.proof import proof_module, trees
from stack.proof import runner as runners
from stack.proof.pytest_run import Servers
from stack.proof.runner import Runner
from stack.store import git
from stack.store.results import AGAIN

from ..store.factories import Remote

PROOF = """
import up

SUM = "up/add-a-sum.patch"
HALF = "up/halve-it.patch"
PROVES = {SUM: ["test_sum"], HALF: ["test_half"]}
UPSTREAM_TESTS = ["tests/test_up.py"]

def test_sum():
    assert up.total(2, 3) == 5

def test_half():
    assert up.half(4) == 2

def test_always():
    assert up.ONE == 1
"""


@pytest.fixture(scope="session")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stack of two patches on a git upstream, their proof, and a cache that has all releases.

    Upstream takes the first patch by v1.1, and both by v1.2. On a branch of its own, v2.0 has a sum and v2.1 half of it, too, in
    other words.
    """
    place = tmp_path_factory.mktemp("proved")
    remote = Remote(place / "remote")
    base = remote.commit({"up.py": b"ONE = 1\n", "tests/test_up.py": b"import up\n\ndef test_one():\n    assert up.ONE == 1\n"})
    remote.tag("v1.0")
    changes = {
        "Add a sum": b"ONE = 1\n\n\ndef total(a, b):\n    return a + b\n",
        "Halve it": b"HALF = 2\nONE = 1\n\n\ndef half(a):\n    return a // HALF\n\n\ndef total(a, b):\n    return a + b\n",
    }
    for number, (subject, text) in enumerate(changes.items(), 1):
        remote.commit({"up.py": text}, subject)
        remote.tag(f"v1.{number}")
    root = place / "root"
    series = root / "stacks/sums"
    options = ["--full-index", "--no-stat", "--no-signature", "--zero-commit", "--no-numbered", f"{base}..HEAD"]
    git.run(["format-patch", "--quiet", *options, "-o", str(series / "up")], cwd=remote.path)
    git.run(["checkout", "--quiet", "--detach", base], cwd=remote.path)
    remote.commit({"up.py": b"from operator import add as total  # noqa\n\nONE = 1\n"}, "Sum up")
    remote.tag("v2.0")
    remote.commit({"up.py": b"from operator import add as total\n\nONE = 1\nhalf = 2 .__rfloordiv__\n"}, "Divide")
    remote.tag("v2.1")
    for file, name in zip(sorted((series / "up").iterdir()), ("add-a-sum", "halve-it"), strict=True):
        file.rename(file.with_name(f"{name}.patch"))
    tables = "".join(f'[[patch]]\nupstream = "up"\nfile = "up/{name}.patch"\n' for name in ("add-a-sum", "halve-it"))
    (series / "series.toml").write_text(
        f'title = "t"\nwhy = "w"\nstate = "pending"\nproves = ["proofs/test_up_proof.py"]\n{tables}'
    )
    (root / "stacks/stack.toml").write_text('series = ["sums"]\n')
    archive = 'archive = { package = "up", version = "1.0" }'
    (root / "pins.toml").write_text(f'[up]\ngit = "{remote.url}"\ntag = "v1.0"\ncommit = "{base}"\n{archive}\n')
    (root / "proofs").mkdir()
    (root / "proofs/test_up_proof.py").write_text(PROOF)
    with Stores(load(root), Place(place / "cache", "git")) as opened:
        for tag in ("v1.0", "v1.1", "v1.2", "v2.0", "v2.1"):
            opened.obtain("up", tag)
    return place


@pytest.fixture
def root(proved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack with two patches, their proof, and a cache of its own, where no result is kept yet.

    Results are kept there, also where this project's own are measured again.
    """
    monkeypatch.delenv(AGAIN, raising=False)
    for name in ("root", "cache"):
        shutil.copytree(proved / name, tmp_path / name, symlinks=True)
    return tmp_path / "root"


@pytest.fixture(scope="session")
def running() -> Iterator[Servers]:
    with Servers() as servers:
        yield servers


@pytest.fixture
def shared_server(running: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each proof from one server for all tests, which has imported pytest once; that runs share nothing is tested."""
    monkeypatch.setattr(runners, "Servers", lambda: contextlib.nullcontext(running))


@pytest.fixture
def stores(root: Path, tmp_path: Path) -> Iterator[Stores]:
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        yield opened


@pytest.fixture
def runner(stores: Stores) -> Iterator[Runner]:
    with Runner(stores) as opened:
        yield opened


@pytest.fixture
def proof(root: Path) -> proof_module.Proof:
    return proof_module.load(root / "proofs/test_up_proof.py", load(root))


PYTHON = Path(sys.executable)
SUM, HALF = (PatchRef("sums", "up", f"up/{name}.patch") for name in ("add-a-sum", "halve-it"))


def test_a_proof_passes_with_all_patches(proof: proof_module.Proof, stores: Stores, runner: Runner) -> None:
    run = runner.run(proof, PYTHON, proof_module.tree(stores, "up"))
    assert run.good
    assert run.passed == ("test_sum", "test_half", "test_always")


@pytest.mark.parametrize(("left_out", "fails"), [(SUM, "test_sum"), (HALF, "test_half")])
def test_a_proof_fails_without_its_patch_alone(
    proof: proof_module.Proof, stores: Stores, left_out: PatchRef, fails: str, runner: Runner
) -> None:
    if left_out == SUM:
        # The second patch stands next to the first one's lines: the first cannot be taken out alone, and that is said.
        with pytest.raises(StackError, match=r"sums/up/add-a-sum\.patch cannot be left out alone"):
            proof_module.tree(stores, "up", without=left_out)
        return
    run = runner.run(proof, PYTHON, proof_module.tree(stores, "up", without=left_out))
    assert run.failed == (fails,)
    assert run.passed == ("test_sum", "test_always")
    assert not run.good


def test_the_upstreams_own_tests_run_in_its_tree(proof: proof_module.Proof, stores: Stores, runner: Runner) -> None:
    assert runner.run_upstream(proof, PYTHON, proof_module.tree(stores, "up")).passed == ("test_one",)


def test_nothing_that_ran_is_not_good(proof: proof_module.Proof, stores: Stores, runner: Runner) -> None:
    run = runner.run(proof, PYTHON, proof_module.tree(stores, "up"), ["test_that_is_not_there"])
    assert not run.good
    assert run.passed == ()


def test_a_tree_becomes_a_folder_once(stores: Stores, tmp_path: Path) -> None:
    tree = proof_module.tree(stores, "up")
    folder = trees.folder(stores.objects("up"), tree, tmp_path / "cache")
    assert (folder / "up.py").read_text().startswith("HALF")
    (folder / "mark").touch()
    assert trees.folder(stores.objects("up"), tree, tmp_path / "cache") == folder
    assert (folder / "mark").exists()
    assert sorted(path.name for path in folder.parent.iterdir() if path.is_dir()) == [tree]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("PROVES = {SUM", "OTHER = {SUM", "has no PROVES"),
        ("up/halve-it.patch", "up/no-such.patch", "which is not a patch of sums: it has up/add-a-sum.patch, up/halve-it.patch"),
        ("PROVES = {SUM", "MERGED = {SUM", "has only one of MERGED and FAILS_ON"),
        ("UPSTREAM_TESTS", "FAILS_ON = 'v0.9'\nUPSTREAM_TESTS", "has only one of MERGED and FAILS_ON"),
        ("PROVES = {SUM", "FAILS_ON = 'v0.9'\nMERGED = {SUM", "'up/add-a-sum.patch', which is of no upstream in pins.toml"),
        ("import up", "import up, # and", r"proofs/test_up_proof\.py:2 is not Python"),
        ("import up", "\0", r"proofs/test_up_proof\.py\S* is not Python"),
        ("import up", "\N{LATIN SMALL LETTER E WITH ACUTE}", "test_up_proof.py is not UTF-8"),
        ('["test_sum"]', "3", r"PROVES\['up/add-a-sum\.patch'\] is not a list of strings"),
        ('["test_sum"]', '"test_sum"', r"PROVES\['up/add-a-sum\.patch'\] is not a list of strings"),
        ('["test_sum"]', "[]", r"PROVES\['up/add-a-sum\.patch'\] names no test"),
        ("{SUM", "{3", "PROVES is not a table of tests"),
        ("{SUM", "{[3]", "has no PROVES"),
        ('UPSTREAM_TESTS = ["tests/test_up.py"]', "UPSTREAM_TESTS = 1", "UPSTREAM_TESTS is not a list of strings"),
        (
            "PROVES = {SUM",
            "MERGED = {'https://example.org/down/pull/1': ['test_always']}\nFAILS_ON = 'v1'\nPROVES = {SUM",
            r"test_up_proof\.py is about down and up: one module imports one upstream",
        ),
    ],
)
def test_a_proof_without_sound_declarations_is_refused(root: Path, old: str, new: str, said: str) -> None:
    file = root / "proofs/test_up_proof.py"
    file.write_bytes(PROOF.replace(old, new).encode("latin-1"))
    archive = 'archive = { package = "down", version = "1.0" }'
    with (root / "pins.toml").open("a") as pins:
        pins.write(f'[down]\ngit = "https://example.org/down"\ntag = "v1"\ncommit = "{"0" * 40}"\n{archive}\n')
    with pytest.raises(StackError, match=said):
        proof_module.load(file, load(root))


def test_a_proof_that_no_series_names_is_refused(root: Path) -> None:
    file = root / "proofs/test_other.py"
    file.write_text(PROOF)
    with pytest.raises(StackError, match=r"no series names proofs/test_other\.py in proves"):
        proof_module.load(file, load(root))


def test_one_test_that_is_missing_keeps_no_other_from_running(stores: Stores, runner: Runner) -> None:
    proof = proof_module.load(stores.stack.root / "proofs/test_up_proof.py", stores.stack)
    done = runner.run(proof, PYTHON, proof_module.tree(stores, "up"), ("test_sum", "test_gone"))
    assert (done.passed, done.failed) == (("test_sum",), ())
