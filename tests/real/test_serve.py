# SPDX-License-Identifier: Apache-2.0
"""The stack's own patches in a real vLLM on this machine's CPU, with a model whose answers are known."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stack.deploy import recipes
from stack.model import verdict as verdicts
from stack.model.stack import load
from stack.model.verdict import Outcome, Verdict
from stack.validation import machine
from stack.validation.serve import checks, suite

from ..cli.conftest import SCRIPT
from ..documented import check_verdict

ROOT = Path(__file__).parents[2]


def outcomes(verdict: Verdict, place: str) -> dict[str, Outcome]:
    return {case.name.removeprefix(place): case.outcome for case in verdict.cases if case.name.startswith(place)}


@pytest.mark.slow
@pytest.mark.images
def test_the_patched_vllm_serves(tmp_path: Path) -> None:
    """One test, as its two servers take minutes and gigabytes; the proofs of the series are tests of their own."""
    out = tmp_path / "verdict.json"
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        "--root",
        str(ROOT),
        "validate",
        "serve",
        "--no-prove",
        "--json",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)["verdict"]
    check_verdict(told)
    assert told == json.loads(out.read_text())
    verdict = verdicts.load(out)
    for name in recipes.ours():
        able = set(recipes.load(name).flags) <= set(machine.here().flags)
        wanted = Outcome.PASSED if able else Outcome.NOT_RUN
        assert outcomes(verdict, f"serve/{name}/") == dict.fromkeys(("starts", *checks.CHECKS, *suite.NUMBERS), wanted)
    for series in load(ROOT).series:
        found = outcomes(verdict, f"serve/series/{series.name}/")
        served = any(ref.upstream == "vllm" for ref in series.patches)
        assert found["delivered"] is (Outcome.PASSED if served else Outcome.NOT_RUN)
        assert {found[f"effect/{name}"] for name in checks.EFFECTS.get(series.name, ())} <= {Outcome.PASSED}
