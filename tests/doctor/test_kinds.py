# SPDX-License-Identifier: Apache-2.0
"""Each kind of file that starts a server is read, with the lines of its settings; one that starts none says so."""

import pytest

from stack.base.errors import StackError
from stack.doctor import script, scripts
from stack.doctor.finding import Severity

from .cases import WRONG
from .kinds import EAGER, MODEL


def look(name: str, text: str, check: str = "") -> list[tuple[str, str, int | None]]:
    """The findings about a script that are not fine: severity, words, line."""
    subject = scripts.ScriptSubject(script.parse(name, text), {}, None)
    found = [one for one in scripts.look(subject) if not check or one.check == check]
    return [(str(one.severity), one.found.what, one.found.line) for one in found if one.severity is not Severity.FINE]


@pytest.mark.parametrize("name", EAGER)
def test_model_and_flag_are_found_at_their_line(name: str) -> None:
    text, line = EAGER[name]
    (serve,) = script.parse(name, text).serves
    assert serve.model == MODEL
    flag = serve.flag("--enforce-eager")
    assert flag is not None
    assert flag.line == line
    assert [(severity, at) for severity, _, at in look(name, text, "eager")] == [("wrong", line)]


def test_a_recipe_s_placeholders_are_its_defaults() -> None:
    (serve,) = script.parse("eugr.yaml", EAGER["eugr.yaml"][0]).serves
    assert [(flag.name, flag.value) for flag in serve.flags] == [
        ("--port", "8000"),
        ("--hf-overrides", '{"a": 1}'),
        ("--enforce-eager", None),
        ("--gpu-memory-utilization", "0.7"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "other"),
    [
        ("a.yaml", 'recipe_version: "2"\nmodel: a/b\nruntime: sglang\ndefaults: {port: 1}\n', "sglang"),
        ("a.sh", "python3 -m sglang.launch_server --model-path a/b\n", "SGLang"),
        ("a.sh", "docker run x trtllm-serve a/b\n", "TensorRT-LLM"),
        ("a.sh", "llama-server -m a.gguf -c 4096\n", "llama.cpp"),
        ("a.sh", "echo hello\n", "no `vllm serve`"),
        ("a.service", "[Service]\nExecStart=/usr/bin/nginx\n", "no `vllm serve`"),
        ("a.py", "print(1)\n", "no `vllm serve`"),
        ("a.yaml", "services:\n  db:\n    image: postgres\n", "no `vllm serve`"),
    ],
)
def test_a_file_that_starts_no_vllm_says_so(name: str, text: str, other: str) -> None:
    (found,) = look(name, text, "serves")
    assert found[0] == "could not tell"
    assert other in found[1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "a: [\n"),
        ("a.yaml", "{" * 5000),
        ("a.py", "def (\n"),
        ("a.service", "ExecStart=vllm serve 'a\n"),
        ("a.sh", "vllm serve 'a\n"),
    ],
)
def test_what_is_no_such_file_is_refused_or_read(name: str, text: str) -> None:
    try:
        read = script.parse(name, text)
    except StackError as refused:
        assert name in str(refused)
    else:
        assert read.path == name


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("export VLLM_USE_V1=0\nvllm serve {model} --host localhost\n", True),
        ("export VLLM_USE_DEEP_GEMM=0 # GB10\nvllm serve {model} --host localhost --gpu-memory-utilization 0.7\n", False),
        ("vllm serve {model} --tool-call-parser hermes --host localhost\n", True),
        ("vllm serve Qwen/Qwen3-30B-A3B --tool-call-parser hermes --host localhost\n", False),
        ("vllm serve Qwen/Qwen3-30B-A3B --reasoning-parser qwen3 --host localhost\n", False),
        ("vllm serve {model} --reasoning-parser qwen3 --host localhost\n", True),
    ],
)
def test_values_and_models_count(text: str, wrong: bool) -> None:
    found = [what for severity, what, _ in look("a.sh", text.format(model=MODEL)) if severity == str(WRONG)]
    assert bool(found) is wrong, found


def test_a_default_that_is_false_is_no_flag() -> None:
    (serve,) = script.parse("a.yaml", EAGER["sparkrun.yaml"][0].replace("true", "false")).serves
    assert [flag.name for flag in serve.flags] == ["--max-model-len"]


def test_doubled_braces_are_no_placeholder() -> None:
    text = EAGER["eugr.yaml"][0].replace('{{"a": 1}}', "{{port}}")
    (serve,) = script.parse("a.yaml", text).serves
    flag = serve.flag("--hf-overrides")
    assert flag is not None
    assert flag.value == "{port}"
