# SPDX-License-Identifier: Apache-2.0
"""Run the tests that a patch brings in upstream's own test files, as upstream runs them, within a proof."""

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import support


class _Outcomes:
    """How each test ended, without its parameters."""

    def __init__(self) -> None:
        self.ended: dict[str, set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a test's call, and of a setup that does not get that far."""
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.partition("[")[0].rpartition("::")[2]
            self.ended.setdefault(name, set()).add(report.outcome)


def passes(file: str, brings: Sequence[str]) -> None:
    """Run a test file of the tree under test, and fail unless all its tests pass and those that the patch brings are among them."""
    tree = Path(os.environ["STACK_PROOF_TREE"])
    assert (tree / file).is_file(), f"the tree has no {file}"
    outcomes, output = _Outcomes(), io.StringIO()
    options = ["-q", "-p", "no:cacheprovider", "--noconftest", f"--rootdir={tree}", f"--config-file={tree / 'pyproject.toml'}"]
    with support.quiet(), contextlib.redirect_stdout(output):
        status = pytest.main([*options, str(tree / file)], plugins=[outcomes])
    shown = output.getvalue()[-6000:]
    assert status == pytest.ExitCode.OK, shown
    passed = {name for name, ended in outcomes.ended.items() if ended == {"passed"}}
    assert passed >= set(brings), f"not all of {sorted(brings)} are among {sorted(passed)}:\n{shown}"
