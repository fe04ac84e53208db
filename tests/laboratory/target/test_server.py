# SPDX-License-Identifier: Apache-2.0
"""Waiting for a server of the archive. A program of vLLM's name stands in for it, which needs a GPU; all else is as there."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from laboratory.target import runner as target_runner
from laboratory.target import server
from stack.model.stack import load
from stack.model.verdict import Outcome
from stack.validation.pack import targets
from stack.validation.pack.contents import SITE
from stack.validation.pack.recipes import Recipe
from stack.validation.suite import Job

ROOT = Path(__file__).parents[3]
RECIPE = Recipe("one", (), ())
SILENT = "import time\ntime.sleep(600)\n"
GONE = "import sys\nprint('no GPU')\nsys.exit(3)\n"
HEALTHY = """\
import http.server
import sys

class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Healthy).serve_forever()
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """An archive whose vLLM is such a program, and which says what version that is."""
    named = tmp_path / "named"
    (named / "vllm-0.32.0.dist-info").mkdir(parents=True)
    (named / "vllm-0.32.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    monkeypatch.syspath_prepend(str(named))

    def made(program: str) -> Path:
        place = tmp_path / "archive" / SITE / "vllm/entrypoints/cli"
        place.mkdir(parents=True)
        (place / "main.py").write_text(program)
        model = tmp_path / "work" / server.MODEL
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        return tmp_path / "archive"

    return made


def cases(archive: Path, patience: float | None) -> dict[str, tuple[Outcome, str]]:
    names = ("serve/one/starts", "serve/one/chat")
    stack = load(ROOT)  # before the time runs: a busy machine takes seconds
    until = None if patience is None else time.monotonic() + patience
    run = target_runner.Run(archive, archive.with_name("work"), stack, Job(only=names), "sm90", until)
    return {case.name: (case.outcome, case.why) for case in target_runner._served(run, RECIPE)}


def test_a_server_that_answers_late_is_not_waited_for(archive: Callable[[str], Path]) -> None:
    begun = time.monotonic()
    found = cases(archive(SILENT), 2.0)
    assert time.monotonic() - begun < targets.SM90.patience / 4
    assert {outcome for outcome, _ in found.values()} == {Outcome.NOT_RUN}
    assert {why.split(", ")[0] for _, why in found.values()} == {"the time was up before its server answered"}
    assert len(found) == 2


def test_one_that_ends_has_failed_and_says_why(archive: Callable[[str], Path]) -> None:
    (_, (outcome, why)), (_, other) = cases(archive(GONE), 60).items()
    assert (outcome, why) == (Outcome.FAILED, "the server ended with 3: no GPU")
    assert other == (Outcome.NOT_RUN, "its server did not become ready")


@pytest.mark.parametrize("patience", [60, None])
def test_one_that_answers_in_time_is_asked(archive: Callable[[str], Path], patience: float | None) -> None:
    found = cases(archive(HEALTHY), patience)
    assert found["serve/one/starts"] == (Outcome.PASSED, "")
    assert found["serve/one/chat"][0] is Outcome.FAILED
