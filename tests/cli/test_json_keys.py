# SPDX-License-Identifier: Apache-2.0
"""The keys that the documentation promises are those that come out, and none comes out that it does not name."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from stack.cli import cli
from stack.model import digest
from stack.model import stack as stacks
from stack.validation.serve import checks, fixture_cache
from tests.proof.test_proof_module import proved, root
from tests.validation.serve import lying_vllm

from ..carry.world import World
from ..documented import ROOT, check_verdict, keys, named, schema, verb
from .conftest import Stack
from .test_verbs import parsed

__all__ = ["proved", "root"]


def test_prove_ablate(root: Path, tmp_path: Path) -> None:
    def ablate() -> Result:
        asked = ["prove", "--source", "git", "--python", sys.executable, "--ablate", "--json"]
        return CliRunner().invoke(cli, ["--root", str(root), "--cache", str(tmp_path / "cache"), *asked])

    sound = ablate()
    assert (sound.exit_code, json.loads(sound.output)) == (0, {"schema": "stack/prove-ablate/1", "lane": None, "idle": []})
    proof = root / "proofs/test_up_proof.py"
    proof.write_text(proof.read_text().replace("    assert up.half(4) == 2\n", "    assert up.ONE\n"))
    idle = ablate()
    assert (idle.exit_code, json.loads(idle.output)) == (
        1,
        {"schema": "stack/prove-ablate/1", "lane": None, "idle": ["sums/up/halve-it.patch"]},
    )
    assert verb("prove --ablate") == keys(json.loads(idle.output))


@pytest.fixture
def server(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that answers as vLLM does with this stack in it."""
    known = SimpleNamespace(tokens=lambda _: lying_vllm.TOKENS, reference=lambda _: lying_vllm.REFERENCE)
    monkeypatch.setattr(fixture_cache, "prepare", lambda *_: known)
    monkeypatch.setattr(lying_vllm, "VERSION", f"0.32.0+sm121.g{digest.of(stacks.load(world.root))[:8]}")
    with lying_vllm.serving(str) as url:
        yield url


def test_validate_serve(stack: Stack, server: str, tmp_path: Path) -> None:
    asked = ("validate", "serve", "--recipe", "gpt-oss", "--url", server, "--weights", "dummy", "--no-prove")
    ran = stack(*asked, "--out", tmp_path / "v.json", "--json")
    assert ran.code == 0, ran
    verdict = parsed(ran)["verdict"]
    check_verdict(verdict)
    assert verdict == json.loads((tmp_path / "v.json").read_text())
    assert {f"serve/gpt-oss/{name}" for name in checks.GENERAL} <= {case["name"] for case in verdict["cases"]}


def test_validate_stale(stack: Stack, server: str, world: World) -> None:
    """The other form of what a suite prints: nothing is left to run."""
    only = ("--only", "serve/gpt-oss/models", "--only", "serve/gpt-oss/version")
    asked = ("validate", "serve", "--recipe", "gpt-oss", "--url", server, "--weights", "dummy", "--no-prove", *only, "--json")
    assert stack(*asked).code == 0
    again = stack(*asked, "--stale")
    assert (again.code, parsed(again)) == (0, {"stale": 0, "standing": ["serve/gpt-oss/models", "serve/gpt-oss/version"]})
    assert json.loads(again.out)["schema"] == "stack/validate-stale/1"


def test_a_verdict_of_a_gpu_has_the_documented_keys() -> None:
    """One that was made on an H200, before cases named their inputs."""
    found = json.loads((ROOT / "validation/verdicts/archive/h200-sm90.json").read_text())
    whole, case = schema()
    assert {*found} == whole.keys() - {"image", "gates", "inputs"}
    assert {key for one in found["cases"] for key in one} == case.keys() - {"inputs"}
    assert keys(found["machine"]) == named(whole["machine"])
