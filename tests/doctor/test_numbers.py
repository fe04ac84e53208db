# SPDX-License-Identifier: Apache-2.0
"""Numbers in a file that Python's int() and str() refuse do not end a command as a defect."""

import pytest

from stack.base.errors import StackError
from stack.doctor import rules, script, scripts
from stack.doctor.knowledge.values import whole

LONG = "9" * 5000
ODD = ["\u00b2", "\u0663", LONG, "nan", "inf", "1e999", "-1", ""]
HEX = f"0x{'f' * 5000}"


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    "flag",
    ["--tensor-parallel-size", "--data-parallel-size", "--nnodes", "--node-rank", "--gpu-memory-utilization", "--max-num-seqs"],
)
def test_a_flag(flag: str, value: str) -> None:
    text = f"vllm serve openai/gpt-oss-20b {flag} {value}\n"
    assert [*scripts.look(scripts.ScriptSubject(script.parse("a.sh", text), {}, None))]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("target", [None, rules.Target("a machine", "12.1", 128 * 10**9, True)], ids=["unknown", "known"])
def test_jobs(value: str, target: rules.Target | None) -> None:
    subject = scripts.ScriptSubject(script.parse("a.sh", f"export MAX_JOBS={value}\nvllm serve a/b\n"), {}, target)
    assert all(len(one.found.what) < 1000 for one in scripts.look(subject) if one.check == "jobs")


@pytest.mark.parametrize(
    "code",
    [f"x = ['vllm', 'serve', 'a/b', '--seed', {HEX}]", f"LLM('a/b', seed={HEX})", f"import os\nos.environ['A'] = {HEX}"],
)
def test_python(code: str) -> None:
    assert script.parse("a.py", f"{code}\nx = ['vllm', 'serve', 'c/d']\n").serves


def test_whole() -> None:
    assert [whole(text) for text in ("0", "12", None, *ODD)] == [0, 12, *[None] * (len(ODD) + 1)]


FLAG = "--gpu-memory-utilization"


@pytest.mark.parametrize(
    "words", [(FLAG, "abc"), (FLAG,), (FLAG, "nan"), (FLAG, "0"), (FLAG, "7"), (f"{FLAG}=x",), (FLAG, LONG)]
)
def test_the_share_of_a_recipe(words: tuple[str, ...]) -> None:
    with pytest.raises(StackError, match="recipe mine: --gpu-memory-utilization is"):
        rules.share(words, "mine")


def test_shares() -> None:
    given = ((), (FLAG, "0.7"), (f"{FLAG}=.85",), (FLAG, "1"), (FLAG, "${SHARE}"))
    assert [rules.share(words, "mine") for words in given] == [rules.DEFAULT, 0.7, 0.85, 1.0, None]
