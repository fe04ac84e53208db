# SPDX-License-Identifier: Apache-2.0
"""`--fix` writes a corrected copy of a script of each kind, with the reason for each line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.doctor import fixing, script, scripts
from stack.doctor.finding import Found

from .cases import WRONG
from .kinds import EAGER, MODEL


def checked(name: str) -> Callable[[str], list[Found]]:
    def check(text: str) -> list[Found]:
        return [one.found for one in scripts.look(scripts.ScriptSubject(script.parse(name, text), {}, None))]

    return check


@pytest.mark.parametrize("name", EAGER)
def test_each_kind_is_corrected_and_stays_what_it_is(name: str) -> None:
    text, line = EAGER[name]
    made = fixing.corrected(text, checked(name))
    assert f"#   line {line}: " in made
    body = "\n".join(each for each in made.split("\n") if not each.startswith("#"))
    assert "enforce" not in body
    assert not [found for found in checked(name)(made) if found.severity is WRONG and "eager" in found.what]
    before, after = script.parse(name, text).serves, script.parse(name, made).serves
    assert [serve.model for serve in after] == [serve.model for serve in before]
    kept = [flag.name for flag in before[0].flags if flag.name != "--enforce-eager"]
    assert [flag.name for flag in after[0].flags if flag.name in kept] == kept


def test_what_a_correction_makes_necessary_is_corrected_too() -> None:
    text = f"export VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1\nvllm serve {MODEL} --tool-call-parser hermes\n"
    made = fixing.corrected(text, checked("a.sh"))
    assert "--tool-call-parser openai" in made
    assert fixing.corrected(made, checked("a.sh")) == made


def test_the_first_line_of_a_script_stays_first() -> None:
    made = fixing.corrected(f"#!/bin/sh\nvllm serve {MODEL} --enforce-eager\n", checked("a.sh"))
    assert made.startswith("#!/bin/sh\n# Corrected by")


def test_a_reason_that_names_a_spark_makes_no_script_of_a_spark(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(f"#!/bin/sh\nvllm serve {MODEL} --enforce-eager --gpu-memory-utilization 0.95\n")
    copy = fixing.copy(file, checked("a.sh"))
    assert copy is not None
    made = copy.file.read_text()
    assert "DGX Spark" in made.partition("vllm serve")[0]
    assert not script.parse("a.sh", made).is_spark
    assert script.parse("a.sh", f"{made}# for a DGX Spark\n").is_spark


def test_a_script_in_order_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text("vllm serve Qwen/Qwen3-30B-A3B --host 127.0.0.1\n")
    assert fixing.copy(file, checked("a.sh")) is None
    assert [*tmp_path.iterdir()] == [file]


def test_it_is_written_beside_and_nothing_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(text := f"vllm serve {MODEL} --enforce-eager\n")
    made = fixing.copy(file, checked("a.sh"))
    assert made is not None
    assert made.file == tmp_path / "a.fixed.sh"
    assert file.read_text() == text
    with pytest.raises(StackError, match="is there already"):
        fixing.copy(file, checked("a.sh"))
