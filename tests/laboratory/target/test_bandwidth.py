# SPDX-License-Identifier: Apache-2.0
"""The measurement of the memory: what its process prints becomes a case, whatever it prints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from laboratory.target import bandwidth
from laboratory.target import runner as target_runner
from stack.model.stack import load
from stack.model.verdict import Case, Outcome
from stack.validation.pack import contents
from stack.validation.pack.case_names import BANDWIDTH
from stack.validation.suite import Job

ROOT = Path(__file__).parents[3]
FOUND = {"bytes": 4 * 2**30, "GB/s read": [231.0, 234.0, 200.0], "GB/s copied": [180.0, 190.0, 185.0]}
FAKE = "import sys\nprint({printed!r})\nprint('a line about what went wrong', file=sys.stderr)\n"


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, printed: str, *only: str) -> list[Case]:
    """The cases of a measurement whose process prints a text."""
    package = folder / "laboratory/target"
    package.mkdir(parents=True)
    for place in (package.parent, package):
        (place / "__init__.py").write_text("")
    (package / "bandwidth.py").write_text(FAKE.format(printed=printed))
    monkeypatch.setattr(contents, "python_path", lambda _: str(folder))
    run = target_runner.Run(ROOT, folder, load(ROOT), Job(only), "sm121")
    return [*target_runner._bandwidth(run)]


def test_medians_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = measured(tmp_path, monkeypatch, json.dumps(FOUND))
    assert (case.name, case.outcome, case.needs) == (BANDWIDTH, Outcome.PASSED, ("sm121",))
    assert (case.measured["GB/s read"], case.measured["GB/s copied"]) == (231.0, 185.0)
    assert case.measured["runs of GB/s read"] == "231.0 234.0 200.0"


@pytest.mark.parametrize(
    "printed", ["", "torch sees no GPU", "[]", json.dumps({"bytes": 1}), json.dumps(FOUND | {"GB/s read": ["x"]})]
)
def test_what_is_no_measurement_fails_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str) -> None:
    (case,) = measured(tmp_path, monkeypatch, printed)
    assert case.outcome is Outcome.FAILED
    assert case.why == "it was not measured: a line about what went wrong"


def test_one_that_nobody_asks_for_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(tmp_path, monkeypatch, json.dumps(FOUND), "serve/*") == []


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("class cuda:\n    @staticmethod\n    def is_available():\n        return False\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, bandwidth.__file__], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "torch sees no GPU\n")
