# SPDX-License-Identifier: Apache-2.0
"""A flag and its value on two lines of a list are corrected together, and a correction changes nothing else."""

from pathlib import Path

import pytest
import yaml

from stack.base.errors import StackError
from stack.doctor import fix_check, fixing, script
from stack.doctor.finding import KEPT, Edit, Found, Severity

from .test_fixing import checked
from .test_fixing_safely import corrected

POD = """apiVersion: v1
kind: Pod
metadata: {name: vllm}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.19.0
      args:
        - openai/gpt-oss-120b
        - --enable-auto-tool-choice
        - --tool-call-parser
        - hermes
        - --max-model-len
        # a comment between the two
        - "262144"
        - --enforce-eager
"""
SERVICE = """services:
  vllm:
    image: vllm/vllm-openai:v0.32.0
    command:
      - "Qwen/Qwen3-8B"
      - "--swap-space"
      - "4"
      - "--kv-cache-dtype"
      - "fp8"
      - --num-scheduler-steps
      - "8"
    ports: ["127.0.0.1:8000:8000"]
"""


def test_kubernetes_gets_values_as_items_of_their_own() -> None:
    made = fixing.corrected(POD, checked("pod.yaml"))
    assert yaml.safe_load(made)["spec"]["containers"][0]["args"] == [
        "openai/gpt-oss-120b", "--enable-auto-tool-choice", "--tool-call-parser", "openai", "--max-model-len", "131072",
    ]  # fmt: skip


def test_a_flag_that_is_taken_out_takes_its_value_along() -> None:
    made = fixing.corrected(SERVICE, checked("compose.yml"))
    assert yaml.safe_load(made)["services"]["vllm"]["command"] == ["Qwen/Qwen3-8B", "--kv-cache-dtype", "fp8"]


@pytest.mark.parametrize(
    ("items", "edit", "made"),
    [
        (["--old", "x"], "--new y", ["--new", "y"]),
        (['"--old"', '"x"', "m"], "--new 1.5", ["--new", "1.5", "m"]),
        (["'--old'", "'x'"], "--new y", ["--new", "y"]),
        (["--old=x", "m"], "--new y", ["--new=y", "m"]),
        (["--old_one", "x"], "", []),
        (["--old", "--next"], "--new true", ["--new", "true", "--next"]),
        (["--old", "x", "--next"], "--new", ["--new", "--next"]),
        (["--old # why", "x # this"], '--new {"a":"b"}', ["--new", '{"a":"b"}']),
        (["--old", "x", "--next"], f"{KEPT} --more 8", ["--old", "x", "--more", "8", "--next"]),
        (["--old"], f"{KEPT} --more", ["--old", "--more"]),
    ],
)
def test_each_form_of_an_item(items: list[str], edit: str, made: list[str]) -> None:
    text = "\n".join(["command:", *(f"  - {item}" for item in ("m", *items)), "more: 1"])
    old = "--old-one" if "--old_one" in items else "--old"
    assert yaml.safe_load(corrected(text, Edit(3, old, edit))) == {"command": ["m", *made], "more": 1}


def test_a_value_that_was_changed_and_one_that_was_added_to_the_same_flag() -> None:
    edits = Edit(2, "--old", f"{KEPT} --more 8"), Edit(2, "--old", f"{KEPT} --most 9"), Edit(2, "--old", "--old y")
    assert yaml.safe_load(corrected("command:\n  - --old\n  - x", *edits))["command"] == [
        "--old", "y", "--more", "8", "--most", "9",
    ]  # fmt: skip


@pytest.mark.parametrize("slash", ["", " \\"])
@pytest.mark.parametrize(
    ("new", "made"),
    [
        ("--new y", '["m", "--new",S\n  "y",S\n  "--last"]'),
        ("", '["m",S\n  "--last"]'),
        (f"{KEPT} --more 8", '["m", "--old",S\n  "x", "--more", "8",S\n  "--last"]'),
    ],
)
def test_a_quoted_list_with_the_value_on_the_next_line(slash: str, new: str, made: str) -> None:
    text = f'["m", "--old",{slash}\n  "x",{slash}\n  "--last"]'
    assert corrected(text, Edit(1, "--old", new)) == made.replace("S", slash)


SHELL = "#!/bin/sh\nvllm serve a/b --max-num-seqs \\\n  8 --host 127.0.0.1\n"


def found(line: int, *edits: Edit, what: str = "it is wrong") -> Found:
    return Found(Severity.WRONG, what, "write it otherwise", line=line, edits=edits)


def test_a_correction_that_leaves_a_value_behind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(SHELL)
    with pytest.raises(StackError, match=r"serve\.sh:2: it is wrong: cannot be corrected: a value would be left") as raised:
        fixing.copy(file, lambda _: [found(2, Edit(2, "--max-num-seqs", ""))])
    assert raised.value.remedy == "correct it by hand: write it otherwise"
    assert [*tmp_path.iterdir()] == [file]


def test_the_other_corrections_are_made_and_what_is_left_is_told(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(SHELL)

    def check(text: str) -> list[Found]:
        harmful = found(2, Edit(2, "--max-num-seqs", ""), what="left")
        return [harmful, found(3, Edit(3, "--host", "--host ::1"))] if "127.0.0.1" in text else [harmful]

    made = fixing.copy(file, check)
    assert made is not None
    assert [each.what for each in made.left] == ["left"]
    assert made.file.read_text().endswith("--max-num-seqs \\\n  8 --host ::1\n")
    assert "left" not in made.file.read_text()


def test_a_result_with_another_fault_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve a/b --moe-backend triton\n")

    def check(text: str) -> list[Found]:
        first = found(1, Edit(1, "--moe-backend", "--moe-backend marlin"), what="takes 3 GB")
        return [first] if "triton" in text else [found(1, what="does not start")]

    with pytest.raises(StackError, match="the result would have another fault"):
        fixing.copy(file, check)
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("command: [a/b, --x, '2']", ""),
        ("command: [a/b, --x, '3']", "--x would change"),
        ("command: [a/c, --x, '2']", "a value would be left"),
        ("command: [a/b, c, --x, '2']", "a value would be left"),
        ("command: [a/b, --x, '2', --y]", "--y would change"),
        ("command: [a/b, --x, '2'", "the result could not be read"),
        ("command: [sh]", "other servers"),
        ("command: [a/b, --x, '2']\n    environment: {A: '1'}", "A would change"),
    ],
)
def test_what_else_differs(after: str, why: str) -> None:
    head = "services:\n  v:\n    image: {}\n    "
    before, made = (
        f"{head.format('i' if 'sh' in each else 'vllm/vllm-openai')}{each}" for each in ("command: [a/b, --x, '1']", after)
    )
    told = fix_check.difference("c.yml", before, made, [Edit(4, "--x", "--x 2")])
    assert told.startswith(why) or why in told
    assert bool(told) == bool(why)
    assert script.parse("c.yml", before).serves


def test_a_reason_is_given_for_what_was_changed_only(tmp_path: Path) -> None:
    """The flag behind which one was to be added goes in the same turn: that is made up for in the next one, and told once."""
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve openai/gpt-oss-120b --host ::1 --tool-call-parser openai \\\n  --enforce-eager\n")
    made = fixing.copy(file, checked("serve.sh"))
    assert made is not None
    assert made.file.read_text().count("alone does nothing") == 1
    head, command = made.file.read_text().split("vllm serve")
    assert head.count("(added to the command: --enable-auto-tool-choice)") == 1
    assert command.count("--enable-auto-tool-choice") == 1


def test_a_block_of_text_and_an_alias_are_left_to_a_person(tmp_path: Path) -> None:
    file = tmp_path / "compose.yml"
    file.write_text(
        "services:\n  a:\n    image: vllm/vllm-openai:v0.32.0\n    command: &c\n      - openai/gpt-oss-120b\n"
        "      - --tool-call-parser\n      - >-\n        hermes\n      - --enforce-eager\n"
        "  b: {image: 'vllm/vllm-openai:v0.32.0', command: *c}\n"
    )
    made = fixing.copy(file, checked("compose.yml"))
    assert made is not None
    assert "--enforce-eager" not in yaml.safe_load(made.file.read_text())["services"]["a"]["command"]
    assert [each.fix for each in made.left if each.rule == "tool-parser-gptoss"] == ["--tool-call-parser openai"]


def test_a_long_file_is_not_read_for_each_correction() -> None:
    text = "".join(f"vllm serve a/b --max-num-seqs \\\n  {at}\n# {'x' * 400}\n" for at in range(1000))
    reads = list[int]()

    def compare(before: str, after: str, edits: object) -> str:
        del after, edits
        reads.append(len(before))
        return "a value would be left"

    harmful = [found(3 * at + 1, Edit(3 * at + 1, "--max-num-seqs", ""), what=f"{at}") for at in range(1000)]
    assert fixing.corrected(text, lambda _: harmful, compare) == text
    assert sum(reads) < 2**22


def test_an_edit_with_a_value_behind_an_equals_sign() -> None:
    before, after = "vllm serve a/b --old 1\n", "vllm serve a/b --new.key=x\n"
    assert fix_check.difference("a.sh", before, after, [Edit(1, "--old", "--new.key=x")]) == ""
