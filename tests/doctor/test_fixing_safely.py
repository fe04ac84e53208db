# SPDX-License-Identifier: Apache-2.0
"""Corrected scripts run what the original runs, less what is named: no quoted text becomes code, and no argument is lost."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.doctor import fixing, script, scripts
from stack.doctor.finding import KEPT, Edit, Found
from stack.doctor.knowledge import load
from stack.doctor.knowledge.rule import Origin


def corrected(text: str, *edits: Edit) -> str:
    """Correct a script once with these edits, and leave out the comment with the reasons."""
    found = Found("wrong", "it is wrong", "mend it", line=1, edits=edits)
    left = [[found], []]
    lines = fixing.corrected(text, lambda _: left.pop(0) if left else []).split("\n")
    return "\n".join(line for line in lines if not line.startswith("# Corrected") and not line.startswith("#   "))


@pytest.mark.parametrize(
    "value",
    ["0.8; touch owned", "a\ntouch owned", "$(touch owned)", "`touch owned`", "'; touch owned; '", "a & b", "a > b", "a b"],
)
@pytest.mark.parametrize("form", ["--new {}", "NEW={}"])
def test_a_value_that_is_not_plain_is_left_to_a_person(value: str, form: str) -> None:
    old = "--old" if form.startswith("-") else "OLD"
    text = f"#!/bin/sh\n{'vllm serve m --old x' if old == '--old' else 'export OLD=x'}\n"
    assert corrected(text, Edit(2, old, form.format(value))) == text


@pytest.mark.parametrize("value", ["0.8", "fp8_e4m3", "/models/a-b", '{"method":"mtp","num_speculative_tokens":2}'])
def test_a_plain_one_is_written(value: str) -> None:
    made = corrected("#!/bin/sh\nvllm serve m --old x\n", Edit(2, "--old", f"--new {value}"))
    assert f"--new {value}" in made.replace("'", "")


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("vllm serve --enforce-eager openai/gpt-oss-120b --host h", "vllm serve openai/gpt-oss-120b --host h"),
        ('vllm serve m --enforce-eager "${EXTRA[@]}"', 'vllm serve m "${EXTRA[@]}"'),
        ('command: ["--enforce-eager", "m", "--host", "h"]', 'command: ["m", "--host", "h"]'),
    ],
)
def test_what_follows_a_switch_stays(line: str, made: str) -> None:
    assert corrected(line, Edit(1, "--enforce-eager", "")) == made


def test_a_result_that_bash_does_not_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text('#!/bin/sh\nif [ -n "$OLD" ]; then\n  export VLLM_USE_V1=1\nfi\nvllm serve m\n')
    gone = Found("wrong", "it is gone", "", line=3, edits=(Edit(3, "VLLM_USE_V1", ""),))
    left = [[gone], []]
    with pytest.raises(StackError, match="bash does not read the result"):
        fixing.copy(file, lambda _: left.pop(0) if left else [])
    assert [each.name for each in tmp_path.iterdir()] == ["serve.sh"]


@pytest.mark.parametrize("new", ["--enforce-eager", "--seed 1"])
@pytest.mark.parametrize(
    "line", ["vllm serve a/b --dtype x", "vllm serve a/b --dtype x --enforce-eager", "vllm serve a/b --dtype x --seed=2"]
)
def test_a_flag_is_added_once(new: str, line: str) -> None:
    """Also where it stands at the line's end, and where its rule fits again afterwards."""
    found = Found("wrong", "it is wrong", "mend it", line=1, edits=(Edit(1, "--dtype", f"{KEPT} {new}"),))
    made = fixing.corrected(line, lambda _: [found])
    assert made.split("\n")[-1].count(new.partition(" ")[0]) <= 1


def test_the_reason_of_a_rule_from_elsewhere_says_what_it_writes(tmp_path: Path) -> None:
    """Its sentences need not say it."""
    file = tmp_path / "own.toml"
    file.write_text(
        '[[rule]]\nid = "x-y"\ntitle = "slow"\nmeans = "so"\nfix = "wait"\nevidence = ["o/r#1"]\nmatches = ["a"]\nmisses = ["b"]\n'
        '[rule.settings]\nflags = ["--dtype"]\nappend = ["--seed 1"]\nremove = ["--enforce-eager"]\n'
    )
    subject = scripts.ScriptSubject(
        script.parse("a.sh", "vllm serve a/b --dtype x\n"), {}, None, rules=(*load.read(file, Origin.STACK),)
    )
    (found,) = (each.found for each in scripts.look(subject) if each.found.rule == "x-y")
    assert found.what.endswith("own.toml; --fix writes --seed 1, takes out --enforce-eager)")
