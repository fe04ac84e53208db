# SPDX-License-Identifier: Apache-2.0
"""Proofs that are commands, run for real in the trees of a small upstream."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stack.base.errors import StackError
from stack.carry.lint import lint
from stack.carry.upstream_stores import Place, Stores
from stack.cli import cli
from stack.model.stack import load
from stack.proof import command_run, proof_module, series_proofs
from stack.proof.pytest_run import Run
from stack.proof.runner import Runner
from stack.proof.series_proofs import ProofRequest, ProofState

from .test_proof_module import proved, root

__all__ = ["proved", "root"]

SUM = "grep -q 'def total' up.py"
HALF = "sh $STACK_ROOT/proofs/half.sh"


def proves(root: Path, value: str) -> None:
    file = root / "stacks/sums/series.toml"
    file.write_text(file.read_text().replace('["proofs/test_up_proof.py"]', value, 1))


@pytest.fixture
def commands(root: Path) -> Path:
    """The series is proved by a command for each patch; the second one reads a file of the stack."""
    (root / "proofs/half.sh").write_text("echo asked >> $TMPDIR/asked\ngrep -q 'def half' up.py\n")
    one = f'{{ run = "{SUM}", patches = ["up/add-a-sum.patch"] }}'
    two = f'{{ run = "{HALF}", patches = ["up/halve-it.patch"], paths = ["proofs"] }}'
    proves(root, f"[{one}, {two}]")
    return root


def prove(root: Path, cache: Path, *more: str) -> Result:
    arguments = ["--root", str(root), "--cache", str(cache), "prove", "--source", "git", *more]
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def test_each_patch_is_proved_by_its_command(commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = prove(commands, tmp_path / "cache", "--json")
    found = json.loads(done.output)
    rows = [(row["file"], row["proof"], row["with"]["state"], row["without"]["state"]) for row in found["patches"]]
    assert rows == [("up/add-a-sum.patch", SUM, "passes", "fails"), ("up/halve-it.patch", HALF, "passes", "fails")]
    assert (done.exit_code, found["sound"], found["cached"]) == (0, True, 0)
    again = json.loads(prove(commands, tmp_path / "cache", "--json").output)
    assert (again["ran"], again["cached"]) == (0, found["ran"])
    (commands / "proofs/half.sh").write_text("echo asked >> $TMPDIR/asked\ngrep -q 'def half(' up.py\n")
    changed = json.loads(prove(commands, tmp_path / "cache", "--json").output)
    assert (changed["ran"], changed["cached"]) == (2, 2)
    assert (tmp_path / "asked").read_text() == "asked\n" * 4


def test_a_command_that_cannot_fail_proves_nothing(root: Path, tmp_path: Path) -> None:
    proves(root, '[{ run = "true" }]')
    done = prove(root, tmp_path / "cache")
    assert done.exit_code == 1
    assert done.output.count("proves nothing: it passes without the patch") == 2


def test_modules_and_commands_stand_together(root: Path, tmp_path: Path) -> None:
    proves(root, f'["proofs/test_up_proof.py", {{ run = "{SUM}", patches = ["up/add-a-sum.patch"] }}]')
    found = json.loads(prove(root, tmp_path / "cache", "--json", "--python", sys.executable).output)
    assert [row["proof"] for row in found["patches"]] == ["proofs/test_up_proof.py"] * 2 + [SUM]
    assert found["sound"]


def test_it_has_landed_where_its_command_passes_without_it(commands: Path, tmp_path: Path) -> None:
    with Stores(load(commands), Place(tmp_path / "cache", "git")) as stores, Runner(stores) as runner:
        asked = ProofRequest(onto={"up": ("v1.1", "v1.2")})
        found = {each.ref.file: (each.landed, each.reason) for each in series_proofs.behaviour(runner, asked)}
    assert found == {"up/add-a-sum.patch": ("v1.1", ""), "up/halve-it.patch": ("v1.2", "")}


def test_a_patch_that_a_rebase_drops_leaves_its_command_behind(commands: Path, tmp_path: Path) -> None:
    arguments = [
        "--root",
        str(commands),
        "--cache",
        str(tmp_path / "cache"),
        "rebase",
        "up",
        "--onto",
        "v1.1",
        "--source",
        "git",
    ]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0
    done = json.loads(prove(commands, tmp_path / "cache", "--json").output)
    assert [row["file"] for row in done["patches"]] == ["up/halve-it.patch"]
    (kept,) = done["merged"]
    assert (kept["address"], kept["here"]["state"], kept["before"]["state"]) == ("sums/up/add-a-sum.patch", "passes", "fails")


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("no-such-program --check", "its program is not there"),
        ("./up.py", "its program cannot be executed"),
        ("kill -KILL $$", "was ended by SIGKILL"),
        ("sleep 60", "it took longer than 1 s"),
    ],
)
def test_what_did_not_run_proves_nothing_and_is_not_kept(root: Path, tmp_path: Path, run: str, said: str) -> None:
    proves(root, f'[{{ run = "{run}", patches = ["up/halve-it.patch"], seconds = 1 }}]')
    for _ in range(2):
        found = json.loads(prove(root, tmp_path / "cache", "--json").output)
        (row,) = found["patches"]
        assert (row["with"]["state"], found["cached"]) == ("not run", 0)
        assert said in row["with"]["reason"]


def test_what_it_started_ends_with_it(root: Path, tmp_path: Path) -> None:
    proves(root, '[{ run = "sleep 77 & echo $! > $STACK_ROOT/started; sleep 77", seconds = 1 }]')
    assert _run(root, tmp_path).broken == "it took longer than 1 s"
    process = int((root / "started").read_text())
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the process is still there")


def test_it_leaves_nothing_to_the_next_one(root: Path, tmp_path: Path) -> None:
    proves(root, '[{ run = "test ! -e left && touch left && echo changed > up.py", patches = ["up/halve-it.patch"] }]')
    with Stores(load(root), Place(tmp_path / "cache", "git")) as stores, Runner(stores, again=True) as runner:
        (found,) = series_proofs.verdicts(runner, ProofRequest())
    assert (found.with_patch.state, found.without.state) == (ProofState.PASSES, ProofState.PASSES)


def test_an_environment_of_its_own(root: Path, tmp_path: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (root / "proofs/packages.txt").write_text("# none yet\n")
    run = "python -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)'"
    proves(root, f'[{{ run = "{run}", requirements = "proofs/packages.txt", python = "{version}" }}]')
    assert _run(root, tmp_path).good
    proves_other = (root / "stacks/sums/series.toml").read_text().replace(f'"{version}"', '"3.99"')
    (root / "stacks/sums/series.toml").write_text(proves_other)
    with pytest.raises(StackError, match=r"python3\.99 is not on PATH"):
        _run(root, tmp_path)


def _run(root: Path, tmp_path: Path) -> Run:
    """Run the only command in the carried tree."""
    stack = load(root)
    (command,) = stack.series[0].commands
    with Stores(stack, Place(tmp_path / "cache", "git")) as stores, Runner(stores) as runner:
        python = command_run.interpreter(command, root, tmp_path / "cache", lambda _: None)
        proof = proof_module.of_command(stack.series[0], command, stack)
        return runner.run(proof, python, proof_module.tree(stores, "up"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('[{ run = "" }]', r"proves\[0\].run is ''"),
        ('[{ run = "a\\nb" }]', "it has to be a shell command in one line"),
        ('[{ rum = "a" }]', "run is missing"),
        ('[{ run = "a", patch = "x" }]', "patch is an unknown key: did you mean 'patches'"),
        ('[{ run = "a", patches = ["up/no.patch"] }]', "names 'up/no.patch': the series has up/add-a-sum.patch"),
        ('[{ run = "a", upstream = "down" }]', "upstream is 'down': the series has up/add-a-sum.patch"),
        ('[{ run = "a", paths = ["../x"] }]', "names '../x': it has to be a path below the stack's folder"),
        ('[{ run = "a", requirements = "/etc/passwd" }]', "it has to be the path of a file of the stack"),
        ('[{ run = "a", python = "2.7" }]', "a version of Python, such as 3.12"),
        ('[{ run = "a", seconds = -1 }]', "a whole number from 0"),
        ("[1]", "it has to be a list of strings"),
        ('"x"', "it has to be a list"),
    ],
)
def test_refused(root: Path, value: str, said: str) -> None:
    proves(root, value)
    with pytest.raises(StackError, match=said):
        load(root)


def test_what_it_reads_has_to_be_there(commands: Path, tmp_path: Path) -> None:
    (commands / "proofs/half.sh").unlink()
    (commands / "proofs/test_up_proof.py").unlink()
    (commands / "proofs").rmdir()
    with Stores(load(commands), Place(tmp_path / "cache", "git")) as stores:
        assert [one.problem for one in lint(stores) if "proves" in one.problem] == [
            f"`{HALF}` in proves needs proofs, which is not there"
        ]
