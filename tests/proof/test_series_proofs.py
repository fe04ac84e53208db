# SPDX-License-Identifier: Apache-2.0
"""Whole series proved: with, without, on other releases; and what proves nothing is found."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.cli import cli
from stack.model.series import PatchRef
from stack.model.stack import load
from stack.proof import environment, proof_module, series_proofs
from stack.proof.runner import Runner
from stack.proof.series_proofs import Kept, PatchProof, ProofRequest, ProofState, Result
from stack.store import git

from .test_proof_module import HALF, PYTHON, SUM, proved, root, running, shared_server, stores

__all__ = ["proved", "root", "running", "shared_server", "stores"]

pytestmark = pytest.mark.usefixtures("shared_server")


def edit(root: Path, old: str, new: str) -> None:
    file = root / "proofs/test_up_proof.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


MERGED = """
import up

MERGED = {{"{address}": ["test_half"]}}
FAILS_ON = "v1.1"

def test_half():
    assert up.half(4) == 2

def test_always():
    assert up.ONE == 1
"""


@pytest.fixture
def merged(root: Path) -> Path:
    """A second proof: of what the pinned tree has, and release v1.1 has not."""
    series = root / "stacks/sums/series.toml"
    series.write_text(series.read_text().replace('_proof.py"', '_proof.py", "proofs/test_up_merged.py"'))
    file = root / "proofs/test_up_merged.py"
    file.write_text(MERGED.format(address=address(root)))
    return file


def address(root: Path) -> str:
    return f"{load(root).pins.get('up').git}/pull/1"


def verdicts(stores: Stores, asked: ProofRequest) -> list[PatchProof]:
    with Runner(stores) as runner:
        return list(series_proofs.verdicts(runner, asked))


def kept(stores: Stores, asked: ProofRequest) -> list[Kept]:
    with Runner(stores) as runner:
        return list(series_proofs.kept(runner, asked))


def idle(stores: Stores, asked: ProofRequest) -> list[PatchRef]:
    with Runner(stores) as runner:
        return list(series_proofs.idle(runner, asked))


def look_after(root: Path, cache: Path, onto: str | None = None) -> Kept:
    with Stores(load(root), Place(cache, "git")) as opened:
        (found,) = kept(opened, ProofRequest(onto={"up": (onto,)} if onto else {}, python=PYTHON))
    return found


def test_each_patch_is_proved_and_can_fail(stores: Stores) -> None:
    found = verdicts(stores, ProofRequest(python=PYTHON))
    assert [(one.ref, one.with_patch.state, one.without.state, one.sound) for one in found] == [
        (SUM, ProofState.PASSES, ProofState.FAILS, True),
        (HALF, ProofState.PASSES, ProofState.FAILS, True),
    ]
    assert found[0].without.reason == "test_sum fails"
    assert {one.proof for one in found} == {"proofs/test_up_proof.py"}


def test_landed_by_behaviour_and_since_when(stores: Stores) -> None:
    on_first = {one.ref: one for one in verdicts(stores, ProofRequest(onto={"up": ("v1.1",)}, python=PYTHON))}
    assert (on_first[SUM].landed, on_first[HALF].landed) == ("v1.1", None)
    assert on_first[HALF].onto is not None
    assert on_first[HALF].onto.state is ProofState.FAILS
    bisected = {
        one.ref: one.landed
        for one in verdicts(stores, ProofRequest(onto=series_proofs.ways(stores, ["v1.2"], through=True), python=PYTHON))
    }
    assert bisected == {SUM: "v1.1", HALF: "v1.2"}


def test_on_a_release_only_what_proves_a_patch_is_run(root: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    edit(root, "    assert up.ONE == 1\n", f"    open({str(ran)!r}, 'a').write(up.__file__ + '\\n')\n")
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        found = [one.landed for one in verdicts(opened, ProofRequest(onto={"up": ("v1.2",)}, python=PYTHON))]
    assert found == ["v1.2", "v1.2"]
    assert len(ran.read_text().splitlines()) == 1  # with all patches


def test_one_module_may_prove_patches_and_look_after_what_is_merged(root: Path, tmp_path: Path) -> None:
    edit(root, "UPSTREAM_TESTS", f'MERGED = {{"{address(root)}": ["test_always"]}}\nFAILS_ON = "v1.1"\nUPSTREAM_TESTS')
    found = look_after(root, tmp_path / "cache", "v1.2")
    assert found.onto is not None
    assert (found.here.state, found.onto.state) == (ProofState.PASSES, ProofState.PASSES)


def test_a_proof_that_cannot_fail_is_found(root: Path, tmp_path: Path) -> None:
    edit(root, 'HALF: ["test_half"]', 'HALF: ["test_always"]')
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        found = {one.ref: one for one in verdicts(opened, ProofRequest(python=PYTHON))}
    assert (found[HALF].without.state, found[HALF].sound) == (ProofState.PASSES, False)
    assert found[SUM].sound


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        ("    assert up.half(4) == 2", "    assert up.half(4) == 3", ProofState.FAILS),
        ("    assert up.half(4) == 2", "    import pytest; pytest.skip('no GPU')", ProofState.NOT_RUN),
        ("def test_half", "def test_other", ProofState.NOT_RUN),
    ],
    ids=["wrong", "skipped", "missing"],
)
def test_what_does_not_pass_with_the_patch_proves_nothing(
    root: Path, tmp_path: Path, old: str, new: str, state: ProofState
) -> None:
    edit(root, old, new)
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        found = {one.ref: one for one in verdicts(opened, ProofRequest(python=PYTHON))}
    assert (found[HALF].with_patch.state, found[HALF].sound) == (state, False)


def test_patches_that_nothing_misses(root: Path, tmp_path: Path) -> None:
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        assert idle(opened, ProofRequest(python=PYTHON)) == []
    edit(root, "    assert up.half(4) == 2", "    assert up.ONE == 1")
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        assert idle(opened, ProofRequest(python=PYTHON)) == [HALF]


def test_what_is_merged_is_there_and_was_not_before(root: Path, merged: Path, tmp_path: Path) -> None:
    found = look_after(root, tmp_path / "cache")
    assert (found.here.state, found.before.state, found.sound) == (ProofState.PASSES, ProofState.FAILS, True)
    assert (found.series, found.address, found.proof) == ("sums", address(root), "proofs/test_up_merged.py")
    assert (found.release, found.before.reason) == ("v1.1", "test_half fails")


def test_what_is_merged_is_looked_for_on_another_release(root: Path, merged: Path, tmp_path: Path) -> None:
    there = look_after(root, tmp_path / "cache", "v1.2")
    lost = look_after(root, tmp_path / "cache", "v1.1")
    assert [(one.onto and one.onto.state, one.sound) for one in (there, lost)] == [
        (ProofState.PASSES, True),
        (ProofState.FAILS, False),
    ]


@pytest.mark.parametrize(
    ("old", "new", "here", "before"),
    [
        ("assert up.half(4) == 2", "assert up.ONE == 1", ProofState.PASSES, ProofState.PASSES),
        ("assert up.half(4) == 2", "assert up.half(4) == 3", ProofState.FAILS, ProofState.FAILS),
        ("import up\n", "import up\nfrom up import half\n", ProofState.PASSES, ProofState.NOT_RUN),
    ],
    ids=["cannot-fail", "lost", "no-import"],
)
def test_what_is_merged_has_to_pass_and_to_be_missed(
    root: Path, merged: Path, tmp_path: Path, old: str, new: str, here: ProofState, before: ProofState
) -> None:
    merged.write_text(merged.read_text().replace(old, new, 1))
    found = look_after(root, tmp_path / "cache")
    assert (found.here.state, found.before.state, found.sound) == (here, before, False)


def test_the_verb_looks_after_what_is_merged(root: Path, merged: Path, tmp_path: Path) -> None:
    ask = ["--root", str(root), "--cache", str(tmp_path / "cache"), "prove", "--source", "git", "--python", sys.executable]
    shown = CliRunner().invoke(cli, ask)
    assert shown.exit_code == 0, shown.output
    assert "fails on v1.1" in shown.output
    answer = json.loads(CliRunner().invoke(cli, [*ask, "--json"]).stdout)
    assert (len(answer["patches"]), [one["address"] for one in answer["merged"]]) == (2, [address(root)])
    assert (answer["merged"][0]["before"]["state"], answer["merged"][0]["onto"]) == ("fails", None)
    merged.write_text(merged.read_text().replace("assert up.half(4) == 2", "assert up.ONE == 1"))
    failed = CliRunner().invoke(cli, ask)
    assert failed.exit_code == 1
    assert "proves nothing: it passes on v1.1, too" in failed.output


def test_the_verb(root: Path, tmp_path: Path) -> None:
    ask = ["--root", str(root), "--cache", str(tmp_path / "cache"), "prove", "--source", "git", "--python", sys.executable]
    shown = CliRunner().invoke(cli, [*ask, "sums", "--onto", "v1.1"])
    assert shown.exit_code == 0, shown.output
    assert "landed by behaviour in v1.1" in shown.output
    answer = json.loads(CliRunner().invoke(cli, [*ask, "--json"]).stdout)
    assert (answer["sound"], [one["file"] for one in answer["patches"]]) == (True, [SUM.file, HALF.file])
    assert answer["patches"][0]["with"] == {"state": "passes", "reason": "", "cached": True}
    assert answer["unnamed"] == []
    edit(root, 'HALF: ["test_half"]', 'HALF: ["test_always"]')
    failed = CliRunner().invoke(cli, ask)
    assert failed.exit_code == 1
    assert "proves nothing: it passes without the patch" in failed.output
    idle = CliRunner().invoke(cli, [*ask, "--ablate"])
    assert (idle.exit_code, idle.output) == (0, "each patch has a test that fails without it\n")


def test_what_pytest_said_is_shown_on_demand(root: Path, tmp_path: Path) -> None:
    edit(root, "def test_half():\n", "def test_half():\n    assert not 'a \x1b[31mred word'\n")
    ask = ["--root", str(root), "--cache", str(tmp_path / "cache"), "prove", "--source", "git", "--python", sys.executable]
    short, whole = (CliRunner().invoke(cli, [*ask, *more]) for more in ((), ("-v",)))
    assert (short.exit_code, whole.exit_code) == (1, 1)
    assert "red word" not in short.output
    assert "`stack prove sums -v` shows what pytest said" in short.output
    assert "assert not 'a ?[31mred word'" in whole.output


def test_a_relative_root(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proofs run in another folder than the command."""
    monkeypatch.chdir(root)
    ask = ["--root", ".", "--cache", str(tmp_path / "cache"), "prove", "--source", "git", "--python", sys.executable]
    shown = CliRunner().invoke(cli, ask)
    assert shown.exit_code == 0, shown.output


def test_the_worst_of_some_results() -> None:
    passed, unrun, failed = (
        Result(ProofState.PASSES),
        Result(ProofState.NOT_RUN, "no torch"),
        Result(ProofState.FAILS, "test_half fails"),
    )
    assert series_proofs.worst([passed, unrun, failed, Result(ProofState.FAILS, "another")]) is failed
    assert series_proofs.worst(iter([passed, unrun])) is unrun
    assert series_proofs.worst([]) is None


def test_an_upstream_goes_to_one_release(stores: Stores) -> None:
    with pytest.raises(StackError, match=r"--onto names up twice: v1\.1 and v1\.2"):
        series_proofs.ways(stores, ["v1.1", "up=v1.2"], through=False)


def test_what_cannot_be_asked(stores: Stores, root: Path, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="unknown series 'none'"):
        verdicts(stores, ProofRequest(("none",), python=PYTHON))
    series = root / "stacks/sums/series.toml"
    series.write_text(series.read_text().replace("proofs/test_up_proof.py", "proofs"))
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        with pytest.raises(StackError, match="series sums names no proof"):
            verdicts(opened, ProofRequest(("sums",), python=PYTHON))
        with pytest.raises(StackError, match="no series names a proof"):
            verdicts(opened, ProofRequest(python=PYTHON))


def rebased(root: Path, cache: Path, *options: str) -> dict[str, Any]:
    """What `stack rebase` says."""
    ask = ["--root", str(root), "--cache", str(cache), "rebase", "up", "--source", "git", "--json", *options]
    answer = CliRunner().invoke(cli, ask)
    assert answer.exit_code in (0, 1), answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_what_landed_by_behaviour_is_dropped_by_a_rebase(root: Path, tmp_path: Path) -> None:
    way = ("--onto", "v2.1", "--through", "v2.0")
    plain = rebased(root, tmp_path / "cache", *way)
    assert [patch["outcome"] for patch in plain["legs"][0]["patches"]] == ["conflict", "conflict"]
    proved = rebased(root, tmp_path / "cache", *way, "--prove", "--python", sys.executable)
    assert proved["conclusion"] == "switched"
    patches = proved["legs"][0]["patches"]
    assert [(patch["outcome"], patch["landed"]["rung"], patch["landed"]["behaviour"]) for patch in patches] == [
        ("landed", "v2.0", True),
        ("landed", "v2.1", True),
    ]
    assert patches[0]["evidence"] == "landed by behaviour in v2.0: test_sum passes without it"
    assert not load(root).patches
    assert proved["emptied"] == ["sums"]


def test_what_has_landed_is_looked_after_without_an_edit(root: Path, tmp_path: Path) -> None:
    stack = ["--root", str(root), "--cache", str(tmp_path / "cache")]
    python = ("--python", sys.executable)
    rebased(root, tmp_path / "cache", "--onto", "v2.1", "--through", "v2.0", "--prove", *python)
    series = load(root).get("sums")
    assert [(one.ref, one.release, one.before) for one in series.landed] == [(SUM, "v2.0", "v1.0"), (HALF, "v2.1", "v1.0")]
    assert CliRunner().invoke(cli, [*stack, "lint", "--source", "git"]).exit_code == 0
    ask = [*stack, "prove", "--source", "git", *python, "--json"]
    answer = CliRunner().invoke(cli, ask)
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["patches"] == []
    assert [(one["address"], one["here"]["state"], one["release"], one["before"]["state"]) for one in found["merged"]] == [
        (SUM.path, "passes", "v1.0", "fails"),
        (HALF.path, "passes", "v1.0", "fails"),
    ]
    lost = json.loads(CliRunner().invoke(cli, [*ask, "--onto", "v2.0"]).stdout)
    assert [(one["onto"]["state"], one["sound"]) for one in lost["merged"]] == [("passes", True), ("fails", False)]


def test_what_was_left_out_by_hand_is_not_taken_for_landed(root: Path, tmp_path: Path) -> None:
    tree, stack = tmp_path / "tree", ["--root", str(root), "--cache", str(tmp_path / "cache")]
    rebased(root, tmp_path / "cache", "--onto", "v2.0", "--prove", "--python", sys.executable, "--workspace", str(tree))
    ended = CliRunner().invoke(cli, [*stack, "rebase", "--skip", str(tree)])
    assert ended.exit_code == 0, ended.output
    assert "sums carries no patch any more" in ended.output
    assert [one.ref for one in load(root).get("sums").landed] == [SUM]
    with pytest.raises(StackError, match=r"proves 'up/halve-it\.patch', which is not a patch of sums"):
        proof_module.load(root / "proofs/test_up_proof.py", load(root))


def test_only_what_lands_by_behaviour_is_dropped(root: Path, tmp_path: Path) -> None:
    patches = rebased(root, tmp_path / "cache", "--onto", "v2.0", "--prove", "--python", sys.executable)["legs"][0]["patches"]
    assert [patch["outcome"] for patch in patches] == ["landed", "conflict"]
    edit(root, 'SUM: ["test_sum"]', 'SUM: ["test_always"]')  # a proof that cannot fail is no evidence
    patches = rebased(root, tmp_path / "cache", "--onto", "v2.0", "--prove", "--python", sys.executable)["legs"][0]["patches"]
    assert [patch["outcome"] for patch in patches] == ["clean", "conflict"]


def test_by_behaviour_and_by_text(root: Path, tmp_path: Path) -> None:
    landed = rebased(root, tmp_path / "cache", "--onto", "v1.2", "--prove", "--python", sys.executable)["legs"][0]["patches"][0]
    assert (landed["outcome"], landed["landed"]["subject"], landed["landed"]["behaviour"]) == ("landed", "Add a sum", False)
    assert landed["evidence"].endswith("landed by behaviour in v1.2: test_sum passes without it")


def test_what_is_known_by_behaviour_outlives_a_conflict(root: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    options = ("--prove", "--python", sys.executable, "--workspace", str(tree))
    assert rebased(root, tmp_path / "cache", "--onto", "v2.0", *options)["stopped"]["patch"] == HALF.path
    (tree / "up.py").write_text("from operator import add as total\n\nONE = 1\n\n\ndef half(a):\n    return a // 2\n")
    git.run(["add", "up.py"], cwd=tree)
    ended = CliRunner().invoke(
        cli, ["--root", str(root), "--cache", str(tmp_path / "cache"), "rebase", "--continue", str(tree)]
    )
    assert ended.exit_code == 0, ended.output
    assert list(load(root).patches) == [HALF]


def test_a_list_that_names_its_torch(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("pytest>=8  # torch==1.0\n--no-index\ntorch==2.13.0  # for all releases\n")
    assert environment.named(file) == environment.Base("torch", "2.13.0")
    file.write_text("torch>=2\n")
    assert environment.named(file) is None


def also(root: Path, text: str) -> None:
    """A second proof module of the series."""
    (root / "proofs/test_more.py").write_text(text)
    series = root / "stacks/sums/series.toml"
    series.write_text(
        series.read_text().replace('"proofs/test_up_proof.py"', '"proofs/test_up_proof.py", "proofs/test_more.py"')
    )


def test_every_proof_of_a_patch_has_to_pass(root: Path, tmp_path: Path) -> None:
    also(
        root, 'import up\nPROVES = {"up/add-a-sum.patch": ["test_code"]}\n\n\ndef test_code():\n    assert up.total.__code__\n'
    )
    options = ("--onto", "v2.0", "--prove", "--python", sys.executable)
    patches = rebased(root, tmp_path / "cache", *options)["legs"][0]["patches"]
    assert patches[0]["outcome"] == "clean"  # there, it is a builtin


def test_one_case_that_is_skipped_proves_nothing(root: Path, tmp_path: Path) -> None:
    text = "import pytest\n\n@pytest.mark.parametrize('n', (1, 2))\ndef test_half(n):\n    if n == 2: pytest.skip('no')\n    "
    edit(root, "def test_half():\n    ", text)
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        found = {one.ref: one for one in verdicts(opened, ProofRequest(python=PYTHON))}
    assert (found[HALF].with_patch.state, found[HALF].with_patch.reason) == (ProofState.NOT_RUN, "test_half was skipped")


def test_another_class_s_test_is_another_test(root: Path, tmp_path: Path) -> None:
    edit(root, "def test_half():\n    assert up.half(4) == 2", "class TestOther:\n    def test_half(self):\n        pass")
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        found = {one.ref: one for one in verdicts(opened, ProofRequest(python=PYTHON))}
    assert found[HALF].with_patch.state is ProofState.NOT_RUN


@pytest.mark.parametrize(
    ("python", "said"),
    [("/bin/false", "ended with status 1"), ("#!/bin/sh\nkill -9 $$\n", "ended with status 137")],
    ids=["false", "killed"],
)
def test_a_proof_that_does_not_run_is_no_failure(root: Path, tmp_path: Path, python: str, said: str) -> None:
    interpreter = Path(python)
    if python.startswith("#!"):
        interpreter = tmp_path / "python"
        interpreter.write_text(python)
        interpreter.chmod(0o755)
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        found = verdicts(opened, ProofRequest(python=interpreter))
    assert {one.without.state for one in found} == {ProofState.NOT_RUN}
    assert all(said in one.without.reason for one in found)
    assert not any(one.sound for one in found)


@pytest.mark.parametrize("place", ["import up\n", "def test_half():\n"], ids=["module", "test"])
@pytest.mark.parametrize(
    ("package", "state"),
    [("no_such_package", ProofState.NOT_RUN), ("up.no_such_module", ProofState.FAILS)],
    ids=["environment", "upstream"],
)
def test_what_the_environment_lacks_is_no_failure(
    root: Path, tmp_path: Path, place: str, package: str, state: ProofState
) -> None:
    edit(root, place, f"{place}{'    ' if 'def' in place else ''}import {package}\n")
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        found = {one.ref: one for one in verdicts(opened, ProofRequest(python=PYTHON))}
    assert (found[HALF].with_patch.state, found[HALF].without.state, found[HALF].sound) == (state, state, False)
    said = "the environment lacks no_such_package: name it in requirements.txt"
    assert (found[HALF].with_patch.reason == said) is (state is ProofState.NOT_RUN)


def test_what_has_no_result_repeats_nothing_that_has_one(root: Path, tmp_path: Path) -> None:
    edit(root, "def test_half():\n", "def test_half():\n    import pytest\n    pytest.skip('no GPU')\n")
    cases = []
    for name in ("first", "second", "third"):
        with Stores(load(root), Place(tmp_path / "cache", "git")) as opened, Runner(opened) as runner:
            found = {one.ref: one for one in series_proofs.verdicts(runner, ProofRequest(python=PYTHON))}
            cases.append((name, runner.ran, runner.cached, found[SUM].with_patch.cached, found[SUM].without.cached))
        assert (found[SUM].sound, found[HALF].with_patch.state) == (True, ProofState.NOT_RUN)
    # Only the skipped proof runs again, with the patch and without it.
    assert cases == [("first", 3, 0, False, False), ("second", 2, 2, True, True), ("third", 2, 2, True, True)]
    edit(root, "    import pytest\n    pytest.skip('no GPU')\n", "    import pytest\n")
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened:
        assert all(one.sound for one in verdicts(opened, ProofRequest(python=PYTHON)))


def test_on_a_release_what_has_no_result_repeats_nothing_that_has_one(root: Path, tmp_path: Path) -> None:
    edit(root, "def test_sum():\n", "def test_sum():\n    import no_such_package\n")
    asked = ProofRequest(onto={"up": ("v1.2",)}, python=PYTHON)
    for earlier in (False, True):
        with Stores(load(root), Place(tmp_path / "cache", "git")) as opened, Runner(opened) as runner:
            found = {one.ref: one.onto for one in series_proofs.verdicts(runner, asked)}
        half, whole = found[HALF], found[SUM]
        assert half is not None
        assert whole is not None
        assert (half.state, half.cached, whole.state, whole.cached) == (ProofState.PASSES, earlier, ProofState.NOT_RUN, False)


def test_what_has_no_result_runs_once_a_command(root: Path, tmp_path: Path) -> None:
    edit(root, "def test_half():\n", "def test_half():\n    import os\n    os._exit(3)\n")
    with Stores(load(root), Place(tmp_path / "cache", "git")) as opened, Runner(opened) as runner:
        for _ in range(2):
            found = list(series_proofs.verdicts(runner, ProofRequest(python=PYTHON)))
            assert {one.with_patch.state for one in found} == {ProofState.NOT_RUN}
        assert runner.ran == 3
