# SPDX-License-Identifier: Apache-2.0
"""A GPU is one that nvcc knows, spelt as nvcc spells it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from stack.cli import cli
from stack.doctor import rules
from stack.proof.compiling import architecture


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "sm_90a", "sm_100f", "sm_120a", "sm_121a", "sm_121f"])
def test_known(name: str) -> None:
    assert architecture.is_known(name)


@pytest.mark.parametrize(
    "name", ["sm_999", "sm_122a", "sm_80a", "sm_90f", "sm_\uff11\uff12\uff11", "sm_121b", "121", "sm_121a\n", "sm_99"]
)
def test_others_are_refused_with_those_that_are_known(name: str, tmp_path: Path) -> None:
    assert not architecture.is_known(name)
    ran = CliRunner().invoke(cli, ["--root", str(tmp_path), "compile-check", "--arch", name])
    assert ran.exit_code == 2
    assert "as the compiler does: sm_80" in ran.output or "Known: sm_75, sm_80" in ran.output


@pytest.mark.parametrize("value", ["99.9a", "\uff11\uff12.\uff11a", "12.1b", "sm_121a", "12"])
def test_a_list_of_architectures_names_those_that_are_known(value: str) -> None:
    (found,) = rules.architectures(value, None, None)
    assert "is not an architecture that nvcc knows" in found.what
    assert [*rules.architectures("9.0a 12.1a", "12.1", None)] == []
