# SPDX-License-Identifier: Apache-2.0
"""`stack doctor` as a user runs it: on files, servers and this machine."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from stack.doctor import running
from stack.doctor.finding import Severity

from .. import forked
from ..doctor import servers
from ..doctor.cases import LOGS
from .conftest import Ran

ROOT = Path(__file__).parents[2]
SECONDS = (
    ("nan", "nan is no number"),
    ("inf", "inf is not in the range 1<=x<=86400"),
    ("1e300", "1e+300 is not in the range 1<=x<=86400"),
    ("0.5", "0.5 is not in the range 1<=x<=86400"),
)
"""What `--timeout` refuses, here and in `stack serve`."""


def doctor(*args: object, env: dict[str, str] | None = None) -> Ran:
    done = forked.run(["--root", ROOT, "doctor", *args], env=os.environ | (env or {}))
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(name="served", scope="module")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script that is in order without a word from the pinned sources."""
    file = tmp_path_factory.mktemp("doctor") / "ok.env"
    file.write_text("MAX_JOBS=4\n")
    return file


def test_this_machine_is_looked_at_unless_something_else_is_named(served: Path) -> None:
    assert doctor("--python", sys.executable).out.startswith("this machine\n")
    assert "this machine" not in doctor("--script", served).out
    both = doctor("--machine", "--python", sys.executable, "--script", served).out
    assert "this machine" in both
    assert str(served) in both


def test_a_log_with_a_fault() -> None:
    file = LOGS / "made-spark-compose.log"
    found = doctor("--log", file, "--recipe", "gpt-oss-120b-spark")
    assert (found.code, found.err) == (1, "")
    assert (
        f"  ✗ {file}:4: VLLM_MXFP4_BACKEND is set, but vLLM does not read it [unknown-variables]\n    fix: take it out; use "
        in found.out
    )
    assert "MARLIN" not in found.out.replace("marlin", "")
    last = found.out.splitlines()[-1]
    assert last.startswith("1 wrong, ")
    assert last.endswith(" fine")


def test_all_is_shown_where_that_is_wanted() -> None:
    found = doctor("--log", LOGS / "made-spark-compose.log", "--verbose")
    assert "✓" in found.out
    assert ":9: MoE: MARLIN for Mxfp4 [backends]" in found.out


FAILED = """\
(APIServer pid=1) INFO 11-26 09:10:01 [api_server.py:1977] vLLM API server version 0.32.0
(EngineCore pid=2) INFO 11-26 09:10:15 [core.py:97] Initializing a V1 LLM engine (v0.32.0) with config: model='a/b'
(EngineCore pid=2) ERROR 11-26 09:11:58 [core.py:770] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.27 GiB.
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


def test_a_failed_start_is_told_once_with_its_cause(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text(FAILED)
    shown = doctor("--log", file)
    lines = shown.out.splitlines()
    assert lines[1].startswith(f"  ✗ {file}:3: the memory is full")
    assert lines[2] == "      torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.27 GiB."
    assert lines[3].endswith("Line 4 follows from it. The server did not start; it was starting the engine.")
    assert lines[4].startswith("    fix: lower --gpu-memory-utilization")
    assert shown.out.count("did not start") == shown.out.count("✗") == 1
    assert lines[-1].startswith("1 wrong, ")
    found = json.loads(doctor("--log", file, "--json").out)["findings"]
    assert [one["check"] for one in found if one["severity"] == "wrong"] == ["start", "errors"]
    (cause,) = (one for one in found if one["rule"] == "out-of-memory")
    assert cause["what"] == f"{cause['quote']}: {cause['title']}; {cause['means']}"


def test_a_failed_start_without_a_known_cause_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text(
        FAILED.replace("torch.OutOfMemoryError: CUDA out of memory.", "RuntimeError: the frobnicator is out of phase.")
    )
    said = doctor("--log", file).out
    assert said.splitlines()[1] == f"  ✗ {file}:3: the first error: no rule knows it [errors]"
    assert said.count("The server did not start; it was starting the engine.") == 1
    file.write_text("\n".join(FAILED.splitlines()[:2]))
    assert "✗" not in (said := doctor("--log", file).out)
    assert "! it ends before the server is ready" in said


def test_nothing_wrong_is_no_error(served: Path) -> None:
    found = doctor("--script", served)
    assert (found.code, found.err) == (0, "")
    assert "wrong" not in found.out


def test_a_server(served: Path) -> None:
    with servers.serving(servers.Manner(chat=servers.endless)) as url:
        found = doctor("--url", f"{url}/v1", "--json")
    assert found.code == 1
    said = json.loads(found.out)
    assert (said["healthy"], said["counts"]["wrong"]) == (False, sum(one["severity"] == "wrong" for one in said["findings"]))
    assert {*said["counts"]} == {*map(str, Severity)}
    (loop,) = (one for one in said["findings"] if one["check"] == "repetition")
    known = {"check", "severity", "where", "line", "what", "fix"}
    assert {*loop} == known | {"rule", "sure", "because", "evidence", "title", "quote", "means"}
    assert (loop["severity"], loop["where"], loop["line"]) == ("wrong", url, None)


def test_each_question_has_an_outcome() -> None:
    with servers.serving(servers.on("/metrics", servers.HTML)) as url:
        found = doctor("--url", url, "--json", "--context", "8k")
        shown = doctor("--url", url, "--context", "none")
    questions = {one["question"]: one for one in json.loads(found.out)["questions"]}
    assert [*questions] == [question.name for question in running.CHECKS]
    outcomes = {name: one["outcome"] for name, one in questions.items()}
    assert (outcomes["metrics"], outcomes["content"], outcomes["context-64k"]) == ("worth knowing", "fine", "not asked")
    assert 0 < sum(one["generated_tokens"] for one in questions.values()) <= 2000
    assert (shown.code, shown.err) == (0, "")
    assert "context-64k" not in {one["check"] for one in json.loads(found.out)["findings"]}
    assert "context-" not in shown.out  # the user left them out
    assert shown.out.splitlines()[-1].endswith("tokens for this, of at most 2000.")


def test_the_counts_are_those_of_the_lines() -> None:
    with servers.serving(servers.on(servers.RESPONSES, servers.error(404, "Not Found"))) as url:
        shown = doctor("--url", url, "--context", "none")
    assert shown.out.count("[responses, responses-stream]") == 1
    notes = sum(line.startswith("  ! ") for line in shown.out.splitlines())
    assert f"{notes} worth knowing" in shown.out


def test_the_key_is_shown_to_the_server_and_to_nobody_else() -> None:
    with servers.serving(servers.Manner(), key="k3y") as url:
        without, with_it = doctor("--url", url), doctor("--url", url, "-v", env={"VLLM_API_KEY": "k3y"})
    assert "it wants a key" in without.out
    assert "it serves openai/gpt-oss-120b" in with_it.out
    assert "k3y" not in with_it.out + with_it.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--log", "/nowhere/x.log"], "/nowhere/x.log cannot be read"),
        (["--script", "/nowhere/x.sh"], "/nowhere/x.sh cannot be read"),
        (["--url", "nonsense"], "is not the address of a server"),
        (["--recipe", "nonsense"], "unknown recipe 'nonsense'"),
        (["--python", "/nowhere/python"], "/nowhere/python cannot be run"),
        *((["--timeout", given], f"'--timeout': {said}") for given, said in SECONDS),
    ],
)
def test_wrong_usage_is_one_line(args: list[str], said: str) -> None:
    assert said in doctor(*args).refused()


def test_nothing_in_a_file_steers_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "x\x1b[31m.log"
    file.write_text("█  version 0.32.0\nRuntimeError: CUDA out of memory\x1b[2J\x07\n")
    found = doctor("--log", file)
    assert found.code == 1
    assert all(letter.isprintable() or letter == "\n" for letter in found.out)


def test_a_report_is_printed_of_a_known_error_too(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("█  version 0.32.0\nRuntimeError: CUDA out of memory\x1b[2J\x07\n")
    reported = doctor("--log", file, "--report")
    assert reported.code == 1
    _, block, after = reported.out.split("```")
    assert "cause (rule out-of-memory, " in block
    assert after == "\n"
    assert all(letter.isprintable() or letter == "\n" for letter in block)
    assert "cause (rule out-of-memory, " in json.loads(doctor("--log", file, "--json").out)["report"]
    assert "```" not in doctor("--log", file).out


@pytest.mark.parametrize("option", ["--log", "--dmesg", "--facts"])
def test_what_needs_no_stack_is_read_outside_of_one(option: str, tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("RuntimeError: CUDA out of memory\n")
    found = forked.run(["doctor", option, file], cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0 if option == "--facts" else 1, "")
    refused = forked.run(["--root", tmp_path, "doctor", option, file], cwd=tmp_path)
    assert (refused.returncode, "pins.toml is missing" in refused.stderr) == (2, True)


def test_a_script_is_checked_by_the_rules_outside_of_a_stack(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve openai/gpt-oss-120b --host 127.0.0.1 --enforce-eager\n")
    found = forked.run(["doctor", "--script", file, "--fix", "--json"], cwd=tmp_path)
    findings = json.loads(found.stdout)["findings"]
    assert found.returncode == 1
    assert [each["check"] for each in findings if each["severity"] == "wrong"] == ["eager"]
    [advice] = [each["fix"] for each in findings if each["severity"] == "could not tell"]
    assert advice == "run it in a clone of a stack, or name one: stack --root DIR doctor"
    assert "enforce-eager" not in (tmp_path / "serve.fixed.sh").read_text().splitlines()[-1]


@pytest.mark.parametrize("columns", [90, 110])
def test_colours_do_not_count_as_width(columns: int, tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("RuntimeError: CUDA out of memory\n")
    env = {"STACK_COLUMNS": str(columns)}
    plain, coloured = (doctor("--log", file, env=env | more).out for more in ({"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    longest = max(len(line) for line in plain.splitlines()[1:])
    assert columns - 15 < longest <= columns
