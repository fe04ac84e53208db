# SPDX-License-Identifier: Apache-2.0
"""Scripts, compose files and Dockerfiles are read as those read them who run them, and whatever is in them."""

import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.doctor import logs, script, shell
from stack.doctor.finding import run
from stack.doctor.rules import Target
from stack.doctor.scripts import CHECKS, ScriptSubject, look

PIECES = st.sampled_from(
    (
        *(
            "vllm serve",
            "docker run",
            "\n",
            " ",
            "\\\n",
            "'",
            '"',
            "$(",
            "${A",
            "}",
            "${A[@]}",
            "A=(",
            ")",
            "#",
            "--x",
            "=",
            "[",
            "{",
        ),
        *(
            ":",
            "- ",
            "services:\n",
            "  a:\n",
            "    command: ",
            "<<EOF\n",
            "EOF\n",
            "ENV A",
            "CMD [",
            "é",
            "\t",
            "--enforce-eager",
            "$A",
        ),
        "export A=1",
    )
)


@pytest.mark.parametrize(
    "text",
    [
        "a b  c",
        "a b 2>/dev/null 3>&1 c </dev/null",
        "a 'b c' \"d e\" f\\ g",
        "a \\\n  b 'c\nd'",
        "a # b\nc d#e",
        "a; b && c",
        'a "b \\"c\\" \\$d" \'e"f\'',
        "A=1 b; C='x y'\nd $C \"$C\" ${C}",
        "a ${U:-z} ${A:-y}\n",
        "L=(a 'b c'\n  d) # e\nf \"${L[@]}\" g",
    ],
)
def test_words_are_a_shell_s(text: str) -> None:
    """What bash itself makes of it: it prints the words of each command in place of running it."""
    function = "show() { printf '<%s>' \"$@\"; echo; }\n"
    names = sorted({word.text for command in _commands(text) for word in command[:1]} - {"show"})
    shown = "".join(f'{name}() {{ show {name} "$@"; }}\n' for name in names if name.isidentifier())
    said = subprocess.run(["bash", "-c", f"{function}{shown}{text}"], capture_output=True, text=True, check=True).stdout
    found = ["".join(f"<{word.text}>" for word in command) for command in _commands(text)]
    assert said.splitlines() == "\n".join(found).splitlines()


def _commands(text: str) -> list[shell.Command]:
    """The commands that are run, without what they assign, and with their lists."""
    found, lists = [], dict[str, shell.Command]()
    for command in shell.commands(text):
        if command[0].text.endswith("=("):
            lists[command[0].text[:-2]] = command[1:]
            continue
        words = [word for word in command if "=" not in word.text]
        full = [each for word in words for each in lists.get(word.text.removeprefix("${").removesuffix("[@]}"), (word,))]
        if full:
            found.append(tuple(full))
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["a.sh", "c.yml", "Dockerfile", ".env"]))
def test_whatever_is_in_it(text: str, name: str) -> None:
    try:
        found = script.parse(name, text)
    except StackError as refused:
        assert name == "c.yml"
        assert name in str(refused)
        return
    last = text.count("\n") + 1
    lines = [one.found.line for one in run(CHECKS, ScriptSubject(found, {}), name)]
    assert all(line is None or 1 <= line <= last for line in lines)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_whatever_is_in_a_log(text: str) -> None:
    last = text.count("\n") + 1
    lines = [one.found.line for one in logs.look(logs.of(f"█  version 1\n{text}"), "log")]
    assert all(line is None or 1 <= line <= last + 1 for line in lines)


@pytest.mark.parametrize("text", ["'" * 20_000, '"a' * 20_000, "${" * 20_000, "$(" * 20_000, "\\" * 20_000, "A=( " * 20_000])
def test_it_takes_no_time(text: str) -> None:
    began = time.monotonic()
    script.parse("a.sh", text)
    script.parse("Dockerfile", f"CMD {text}")
    assert time.monotonic() - began < 60


def test_what_doubles_is_not_filled_in() -> None:
    grown = script.parse("serve.sh", "A=xxxxxxxxxx\n" + "A=$A$A\n" * 18 + "vllm serve $A\n")
    assert max(len(one.value) for one in grown.settings) < 5000
    assert [len(one.model or "") < 5000 for one in grown.serves] == [True]


def test_merged_keys_that_multiply() -> None:
    text = "a0: &a0 {x: 1}\n"
    for level in range(1, 7):
        text += "".join(f"a{level}-{one}: &a{level}-{one} {{<<: [{_each(level - 1)}]}}\n" for one in range(40))
    text += f"services: {{a: {{<<: [{_each(6)}], command: [vllm, serve, m]}}}}\n"
    began = time.process_time()
    with pytest.raises(StackError, match="stands for more than 1000000 values"):
        script.parse("compose.yml", text)
    assert time.process_time() - began < 5  # 40 to the power of 5 merges take hours


def _each(level: int) -> str:
    return ", ".join(f"*a{level}-{one}" for one in range(40)) if level else "*a0"


def test_of_merged_keys_the_first_counts() -> None:
    text = "x: &x {command: vllm serve x}\ny: &y {command: vllm serve y, privileged: true}\nservices: {a: {<<: [*x, *y]}}\n"
    found = script.parse("compose.yml", text)
    assert [one.model for one in found.serves] == ["x"]
    assert [one.privileged for one in found.containers] == [2]


def test_nothing_is_fine_in_what_is_not_understood() -> None:
    found = [*look(ScriptSubject(script.parse("notes.txt", "rm -rf ~/.cache/vllm\nhello\n"), {}))]
    assert [(one.check, one.severity.value) for one in found] == [("serves", "could not tell"), ("caches-deleted", "wrong")]


def test_anchors_and_merged_keys_of_compose() -> None:
    text = "x-a: &a {VLLM_A: 1}\nservices:\n  b: &b\n    environment:\n      <<: *a\n      B: 2\n    command: vllm serve m\n  c:\n    <<: *b\n"
    found = script.parse("compose.yml", text)
    assert [(one.name, one.line) for one in found.settings] == [("VLLM_A", 1), ("B", 6)] * 2
    assert [(one.model, one.line) for one in found.serves] == [("m", 7)] * 2


@pytest.mark.parametrize("text", ["a: b: c", "- &a [*a]", "{{", "\x00"])
def test_no_yaml_is_refused_or_empty(text: str) -> None:
    try:
        assert script.parse("compose.yml", text).serves == ()
    except StackError as refused:
        assert "is not valid YAML" in str(refused)


def test_whose_flags_a_service_without_a_known_image_has() -> None:
    text = "services:\n  a:\n    {}\n    command: {}\n"
    ours, others = "[--model, m, --max-model-len, '4096']", "[--host, 0.0.0.0, --port, '80']"
    for source, command, models in (
        ("build: .", ours, ["m"]),
        ("build: .", others, []),
        ("image: ghcr.io/open-webui/open-webui", others, []),
        ("image: own/server", ours, ["m"]),
        ("image: own/vllm", others, [None]),
        ("image: vllm/vllm-openai", "[Qwen/Qwen3-8B, --port, '80']", ["Qwen/Qwen3-8B"]),
    ):
        found = script.parse("compose.yml", text.format(source, command))
        assert [serve.model for serve in found.serves] == models, (source, command)
    assert script.parse("compose.yml", "services:\n  a:\n    build: !reset null\n    image: !mine x\n").built == ()


def test_who_starts_vllm_serve() -> None:
    for text, name, is_repeated in (
        ("docker run vllm/vllm-openai:v0.32.0 vllm serve m", "a.sh", True),
        ("docker run vllm/vllm-openai:v0.32.0 serve m --port 1", "a.sh", True),
        ("services: {a: {image: 'vllm/vllm-openai:v0.32.0', command: [serve, m]}}", "c.yml", True),
        ("services: {a: {image: own/vllm, command: [serve, m]}}", "c.yml", False),
        ("docker run --entrypoint '' vllm/vllm-openai:v0.32.0 vllm serve m", "a.sh", False),
        ("docker run nvcr.io/nvidia/vllm:26.02-py3 vllm serve m", "a.sh", False),
        ("docker run vllm/vllm-openai-rocm:v0.23.0 Qwen/Qwen3.5-2B --port 1", "a.sh", False),
        ("services: {a: {image: vllm/vllm-openai, entrypoint: vllm, command: serve m}}", "c.yml", False),
        ("kind: Pod\napiVersion: v1\nspec: {containers: [{image: vllm/vllm-openai, args: [vllm, serve, m]}]}", "k.yml", True),
        (
            "kind: Pod\napiVersion: v1\nspec: {containers: [{image: vllm/vllm-openai, command: [vllm, serve, m]}]}",
            "k.yml",
            False,
        ),
    ):
        (serve,) = script.parse(name, text).serves
        assert serve.is_repeated is is_repeated, text
        assert serve.model in ("m", "Qwen/Qwen3.5-2B"), text


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve a/b {h} --port 8001\nvllm serve a/c {h} --port 8002\n",  # one after the other
        "vllm serve a/b {h} &\nvllm serve a/c {h}\n",  # one port
        "vllm serve a/b {h} --port 8001 && vllm serve a/c {h} --port 8002\n",
        "if true; then vllm serve a/b {h} --port 8001 &\nelse vllm serve a/c {h} --port 8002 &\nfi\n",
        "run() {{\n vllm serve a/b {h} --port 8001 &\n}}\nvllm serve a/c {h} --port 8002\n",
        "vllm serve a/b {h} --port $A &\nvllm serve a/c {h} --port $B\n",
        "vllm serve a/b {h} --port 8001 --kv-cache-memory-bytes 1G &\nvllm serve a/c {h} --port 8002\n",
        "vllm serve a/b --gpu-memory-utilization 0.4 --port 8001 &\nvllm serve a/c {h} --port 8002\n",
    ],
)
def test_servers_that_do_not_run_at_once_or_have_room(text: str) -> None:
    subject = ScriptSubject(
        script.parse("a.sh", text.format(h="--gpu-memory-utilization 0.6")),
        {},
        Target("Spark", "12.1", 128 * 10**9, unified=True),
    )
    assert not [each for each in look(subject) if "servers want" in each.found.what]


@pytest.mark.parametrize(
    "text",
    [
        "docker run --gpus all --entrypoint vllm vllm/vllm-openai:v0.32.0 serve m --port 1",
        "docker run --entrypoint=/usr/bin/vllm img serve m --port 1",
        "docker run --entrypoint bash img -lc 'pip install x && vllm serve m --port 1'",
        "podman run --entrypoint='' img vllm serve m --port 1",
        "docker run --entrypoint '' img bash -c 'vllm serve m --port 1'",
        "docker run --entrypoint python3 --rm -it img -m vllm.entrypoints.cli.main serve m --port 1",
    ],
)
def test_the_program_of_a_container(text: str) -> None:
    served(text, "serve.sh")


@pytest.mark.parametrize(
    "text",
    [
        "entrypoint: [vllm, serve], command: [m, --port, '1']",
        "entrypoint: vllm serve, command: m --port 1",
        "entrypoint: [bash, -c], command: ['vllm serve m --port 1']",
        "entrypoint: [], command: vllm serve m --port 1",
        "entrypoint: '', command: vllm serve m --port 1",
        "entrypoint: null, command: m --port 1",
        "entrypoint: [vllm, serve, m, --port, '1'], command: null",
    ],
)
def test_the_program_of_a_service(text: str) -> None:
    served(f"services: {{a: {{image: 'vllm/vllm-openai:v0.32.0', {text}}}}}", "compose.yml")


def test_the_folded_program_of_a_service() -> None:
    text = 'services:\n  a:\n    image: x\n    entrypoint: >\n      bash -c "vllm serve m\n      --port 1"\n'
    assert served(text, "compose.yml") == [6]


@pytest.mark.parametrize(
    "text",
    [
        'ENTRYPOINT ["vllm", "serve"]\nCMD ["m", "--port", "1"]\n',
        'CMD ["m", "--port", "1"]\nENTRYPOINT ["vllm", "serve"]\n',
        'ENTRYPOINT ["x"]\nENTRYPOINT []\nCMD ["vllm", "serve", "m", "--port", "1"]\n',
        'ENTRYPOINT ["bash", "-c"]\nCMD ["vllm serve m --port 1"]\n',
        'ENTRYPOINT vllm serve m --port 1\nCMD ["x"]\n',
        'CMD ["--model=m", "--port", "1"]\n',
        'CMD ["x"]\nCMD vllm serve m --port 1\n',
        'FROM a AS other\nENTRYPOINT ["x"]\nFROM --platform=linux/arm64 vllm/vllm-openai\nCMD ["--model", "m", "--port", "1"]\n',
    ],
)
def test_the_program_of_an_image(text: str) -> None:
    served(f"FROM vllm/vllm-openai:v0.32.0\n{text}", "Dockerfile")


def served(text: str, name: str) -> list[int]:
    """Check that a file serves model m at port 1 and nothing else; return the lines of its flags."""
    (serve,) = script.parse(name, text).serves
    flags = [flag for flag in serve.flags if flag.name != "--model"]
    assert (serve.model, [(flag.name, flag.value) for flag in flags], serve.repeated) == ("m", [("--port", "1")], "")
    return [flag.line for flag in flags]
