# SPDX-License-Identifier: Apache-2.0
"""`stack serve --compare`: input that is refused. Comparisons with llama-benchy are in tests/real/test_serve_compare.py."""

import socket
import sys

import pytest

from stack.cli import documents
from stack.cli.rendering import comparison
from stack.cli.rendering.comparison import Comparison
from stack.deploy import recipes, vllm_log
from stack.deploy.vllm_log import Mismatch
from stack.serving.comparison import flow
from stack.serving.comparison.flow import Sample
from stack.serving.start import Up
from stack.validation.bench.benchy import Measured, Size

from .. import json_documents
from ..carry.world import World
from ..serving.comparison.conftest import ROOT, Standing, standing
from .conftest import Stack

__all__ = ["standing"]

LOGS = ROOT / "tests/deploy/logs"
BOTH = ("serve", "--compare", "cpu-fp32", "cpu-mxfp4")


def options(standing: Standing) -> list[str]:
    return ["--python", sys.executable, "--model", str(standing.model), "--port", str(standing.port)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("serve",), "Missing argument 'RECIPE'"),
        (("serve", "--compare", "cpu-fp32"), "Option '--compare' requires 2 arguments"),
        (("serve", "--compare", "cpu-fp32", "none"), "unknown recipe 'none'"),
        ((*BOTH, "gpt-oss"), "--compare names both recipes: leave gpt-oss out"),
        ((*BOTH, "--rounds", "2"), "Invalid value for '--rounds'"),
        ((*BOTH, "--dry-run"), "--dry-run is for one recipe: leave it out with --compare"),
        ((*BOTH, "--image", "oci:x"), "--image is for one recipe"),
        ((*BOTH, "--set", "A=b"), "--set is for one recipe"),
        ((*BOTH, "--host", "0.0.0.0"), "0.0.0.0 can be reached from other machines: --compare serves for this machine only"),
        ((*BOTH, "--model", "/nowhere"), "/nowhere has no config.json"),
        ((*BOTH, "--", "--port", "1"), "--port is among the extra flags"),
        (("serve", "--compare", "gpt-oss-120b-spark", "gpt-oss-120b-h200"), "name the checkpoint's folder with --model"),
        (("serve", "--compare", "gpt-oss-120b-spark", "gpt-oss-20b-spark"), "compare recipes of one model"),
    ],
)
def test_refused_before_anything_starts(stack: Stack, arguments: tuple[str, ...], problem: str) -> None:
    assert problem in stack(*arguments).refused()


def test_recipes_of_the_stack_s_own(world: World, stack: Stack) -> None:
    folder = world.root / "validation/recipes"
    folder.mkdir(parents=True)
    shipped = (recipes.FOLDER / "gpt-oss-120b-h200.toml").read_text()
    (folder / "mine.toml").write_text(shipped)
    refused = stack("serve", "--compare", "mine", "gpt-oss-120b-h200").refused()
    assert refused == "--compare measures with the model's own tokenizer: name the checkpoint's folder with --model"


def test_a_port_that_is_taken(standing: Standing, stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", standing.port)):
        assert f"port {standing.port} of 127.0.0.1 is in use" in stack(*BOTH, *options(standing)).refused()


def sample(number: int, label: str, decode: float, prefill: float) -> Sample:
    size = Size(512, 128, 2)
    measured = Measured(size, *((value,) * 2 for value in (128.0, prefill, decode, decode, 1.0, 1.0, 1.0)))
    log = (LOGS / f"{'cpu-fp32' if label == 'A' else 'cpu-mxfp4'}.log").read_text()
    other = (Mismatch("graphs", "on", "off"),) if label == "B" else ()
    return Sample(number, label, Up(vllm_log.read(log), other, "http://127.0.0.1:1", "m", 1.0, lambda: 0), (measured,))


@pytest.fixture
def shown() -> Comparison:
    values = ((1, 100.0, 150.0), (2, 102.0, 150.0), (3, 98.0, 151.0), (4, 100.0, 149.0))
    samples = [
        sample(number, label, one, 1000 + number % 3) for number, *both in values for label, one in zip("AB", both, strict=True)
    ]
    return Comparison(("cpu-fp32", "cpu-mxfp4"), 4, 2, tuple(samples), flow.results(samples))


def test_in_words(shown: Comparison, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACK_COLUMNS", "80")
    comparison.show(shown)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    [decode] = [line for line in lines if line.startswith("decode 128 at 512")]
    assert decode.split() == [
        "decode",
        "128",
        "at",
        "512",
        "100.0",
        "150.0",
        "1.500",
        "1.454",
        "to",
        "1.548",
        "B",
        "is",
        "faster",
    ]
    [prefill] = [line for line in lines if line.startswith("prefill 512")]
    assert prefill.endswith("no difference shown")
    assert "A (cpu-fp32): MoE CPU" in lines[0]
    assert "note: B, graphs: expected on, runs off" in lines
    assert "4 rounds in the order A B B A A B B A, 2 runs of each size in each." in lines
    assert any("Student's t interval" in line for line in lines)


def test_as_json(shown: Comparison) -> None:
    said = json_documents.check(documents.as_text(documents.document(comparison.as_json(shown), "serve-compare")))
    assert [result["faster"] for result in said["results"]] == ["b", None]
    assert said["servers"][1]["mismatches"] == ["graphs: expected on, runs off"]
    nothing = Comparison(shown.names, 4, 2, (), (), "B did not start")
    assert (
        json_documents.check(documents.as_text(documents.document(comparison.as_json(nothing), "serve-compare")))["results"]
        == []
    )
