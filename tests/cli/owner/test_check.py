# SPDX-License-Identifier: Apache-2.0
"""`spark-stack check` against servers that are right, wrong, or not there."""

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stack.images import labels
from stack.model import verdict as verdicts
from stack.model.verdict import Case, Outcome
from stack.owner.checking import harmony_tokens, short_bench
from stack.validation.bench import benchy
from stack.validation.bench.benchy import Measured, Size

from ...doctor import servers
from ...owner.checking import right_server
from ...owner.readiness import spark as sparks
from ...owner.readiness.spark import FakeSpark
from ...validation.serve import lying_vllm
from . import asking
from .asking import SparkStack

QUICK = ("--minutes", "0")
PINS = json.dumps({"vllm": {"commit": "5df63a720", "tag": "v0.32.0"}})


@pytest.fixture(name="run")
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkStack:
    monkeypatch.setattr(harmony_tokens, "encoder", lambda *_: right_server.encode)
    return asking.runner(tmp_path, monkeypatch)


@pytest.fixture(name="spark")
def _spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A Spark whose docker has the image that runs, with a stack's labels."""
    (tmp_path / "spark").mkdir()
    made = sparks.made(tmp_path / "spark", monkeypatch)
    image = json.dumps([{"Id": asking.ID, "Config": {"Labels": {labels.STACK: right_server.STACK, labels.PINS: PINS}}}])
    made.program("docker", f"case \"$1\" in\nimage) echo '{image}' ;;\n*) exit 1 ;;\nesac")
    return made


def cases(file: Path) -> dict[str, Case]:
    return {case.name: case for case in verdicts.load(file).cases}


def test_a_right_server_and_its_verdict(run: SparkStack, spark: FakeSpark) -> None:
    with right_server.serving() as url:
        asking.up(urlsplit(url).port or 0)
        ran = run("check", *QUICK)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("right: ")
    assert "No speed was measured: it was left out" in ran.out
    assert lines[-1] == "Share it: spark-stack share"
    (file,) = (Path(os.environ["XDG_STATE_HOME"]) / "stack/verdicts").glob("check-*.json")
    made = verdicts.load(file)
    assert made.stack == right_server.STACK
    assert made.image == asking.DIGEST
    assert made.pins["vllm"].tag == "v0.32.0"
    assert made.recipe == "gpt-oss-120b-spark"
    assert made.machine.gpus[0].name == "NVIDIA GB10"
    found = cases(file)
    assert found["serve/running/prompt/tools"].outcome is Outcome.PASSED
    assert found["doctor/content"].outcome is Outcome.PASSED
    assert {case.needs for case in found.values()} == {("sm121",)}


def test_a_wrong_answer_exits_with_1(run: SparkStack, spark: FakeSpark, tmp_path: Path) -> None:
    out = tmp_path / "v.json"
    with right_server.serving(manner=servers.Manner(chat=servers.endless)) as url:
        asking.up(urlsplit(url).port or 0)
        ran = run("check", *QUICK, "--out", out)
        told = json.loads(run("check", *QUICK, "--json").out)
    assert ran.code == 1
    assert ran.out.startswith("wrong: ")
    assert "-v shows the requests and answers" in ran.out
    assert "✗ doctor/repetition: " in ran.out
    assert cases(out)["doctor/repetition"].outcome is Outcome.FAILED
    assert told["right"] is False
    assert {case["name"] for case in told["cases"] if case["outcome"] == "failed"} >= {"doctor/repetition"}


def test_a_prompt_that_arrives_wrong_exits_with_1(run: SparkStack, spark: FakeSpark) -> None:
    with right_server.serving(lambda text: text.replace('"prompt_token_ids": [200006', '"prompt_token_ids": [7')) as url:
        asking.up(urlsplit(url).port or 0)
        ran, whole = run("check", *QUICK), run("check", *QUICK, "-v")
    assert ran.code == 1
    assert "✗ serve/running/prompt/" in ran.out
    assert "request: POST" not in ran.out
    assert "request: POST" in whole.out


def test_a_server_of_no_stack_has_no_verdict(run: SparkStack, tmp_path: Path) -> None:
    with right_server.serving(version="0.32.0") as url:
        ran = run("check", *QUICK, "--url", url)
        refused = run("check", *QUICK, "--url", url, "--out", tmp_path / "v.json")
        told = json.loads(run("check", *QUICK, "--url", url, "--json").out)
    assert ran.code == 0
    assert "No verdict was written: neither an image's labels" in ran.out
    assert "there is no verdict" in asking.refused(refused)
    assert (told["verdict"], told["version"], told["recipe"]) == (None, "0.32.0", None)


def test_an_engine_that_does_not_answer_is_no_reason_not_to_check(run: SparkStack, spark: FakeSpark) -> None:
    spark.program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    with right_server.serving() as url:
        asking.up(urlsplit(url).port or 0)
        ran = run("check", *QUICK)
    assert ran.code == 0
    assert "No verdict was written" in ran.out


def test_speeds_are_laid_beside_published_ones(
    run: SparkStack, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")

    def measured(_python: Path, _target: object, size: Size, *_: object) -> Measured:
        runs = (1.0,) * size.runs
        return Measured(size, runs, (4500.0,) * size.runs, (61.2,) * size.runs, runs, runs, runs, runs)

    monkeypatch.setattr(benchy, "python", lambda *_: Path("python"))
    monkeypatch.setattr(benchy, "version", lambda _: "0.4.0")
    monkeypatch.setattr(benchy, "measure", measured)
    with right_server.serving() as url:
        asking.up(urlsplit(url).port or 0)
        ran = run("check", "--tokenizer", tokenizer)
        told = json.loads(run("check", "--tokenizer", tokenizer, "--json").out)
    assert ran.code == 0, ran.out
    row = next(line for line in ran.out.splitlines() if line.startswith("tg32 after 512"))
    assert row.split()[3:8] == ["61.2", "±", "0.0", "62.4", "[1]"]
    assert row.endswith("%")
    assert "[1] the community's container on one DGX Spark" in ran.out
    assert max(len(line) for line in ran.out.splitlines() if "/stack/verdicts/" not in line) <= 80
    assert len(told["speeds"]) == 3 + len(short_bench.SIZES)
    assert told["speeds"][3]["published"] == 62.44
    assert 0.5 < told["speeds"][3]["of_limit"] < 1


def test_a_clock_that_is_stuck_under_load(
    run: SparkStack, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answers are right, and the machine must be mended."""
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    spark.nvidia_smi(clocks="611, 3003, 96, 18.00, 50, 0x0")
    monkeypatch.setattr(benchy, "python", lambda *_: Path("python"))
    monkeypatch.setattr(benchy, "version", lambda _: "0.4.0")
    monkeypatch.setattr(short_bench, "run", lambda *_: iter(()))
    with right_server.serving() as url:
        asking.up(urlsplit(url).port or 0)
        ran = run("check", "--tokenizer", tokenizer)
    assert ran.code == 1
    assert ran.out.startswith("right: ")
    assert "✗ power: the GPU stays at a low clock under load" in ran.out


def test_nothing_to_check(run: SparkStack) -> None:
    assert asking.refused(run("check")).startswith("no server was started here: spark-stack up RECIPE")
    assert "does not answer" in asking.refused(run("check", "--url", "http://127.0.0.1:9"))
    assert "is not the address of a server" in asking.refused(run("check", "--url", "ftp://x"))
    assert "--minutes" in asking.refused(run("check", "--minutes", "61"))


def test_a_model_that_is_not_gpt_oss(run: SparkStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lying_vllm, "_detokenize", lambda _: [{"prompt": "<|im_start|>user"}])
    with right_server.serving(manner=servers.Manner(models=[{"id": "qwen", "max_model_len": 131072}])) as url:
        ran = run("check", *QUICK, "--url", url)
    assert "cases not run: the prompts of qwen are not in gpt-oss's format" in " ".join(ran.out.split())


def test_a_server_that_wants_a_key(run: SparkStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with right_server.serving(key="secret-of-the-owner") as url:
        assert "it wants a key: set VLLM_API_KEY to it" in asking.refused(run("check", *QUICK, "--url", url))
        monkeypatch.setenv("VLLM_API_KEY", "secret-of-the-owner")
        ran = run("check", *QUICK, "--url", url, "--json")
    assert ran.code == 0
    assert "secret-of-the-owner" not in ran.out + ran.err
