# SPDX-License-Identifier: Apache-2.0
"""The SkyPilot task follows SkyPilot's own schemas, and is written once."""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from stack.matrix import sky
from stack.store import cache

from .conftest import Proved

PACKAGE = "skypilot==0.14.1"
_SCHEMAS = """
import importlib, json, sys, types
# The package needs dozens of others; its schemas need these modules alone.
for name in ("sky", "sky.utils", "sky.skylet"):
    module = types.ModuleType(name)
    module.__path__, module.__version__, module.__commit__ = [f"{sys.argv[1]}/{name.replace('.', '/')}"], "1.0.0", ""
    sys.modules[name] = module
stub = sys.modules["sky.skylet.autostop_lib"] = sys.modules["sky.skylet"].autostop_lib = types.ModuleType("autostop_lib")
stub.AutostopWaitFor = types.SimpleNamespace(supported_modes=lambda: ["none"])
schemas = importlib.import_module("sky.utils.schemas")
schemas.get_config_schema = lambda: {"properties": {}}  # of a server's settings, which no task of ours has
schemas._task_config_schema = lambda: {}
print(json.dumps([schemas.get_task_schema(), schemas.get_resources_schema()]))
"""


@pytest.fixture(scope="module")
def schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    """SkyPilot's schemas of a task and of its resources, from its package."""
    folder = cache.root() / "tests" / PACKAGE.replace("==", "-")
    with cache.lock(folder):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as name:
                pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name, PACKAGE]
                done = subprocess.run(pip, capture_output=True, text=True, check=False)
                if done.returncode and os.environ.get("STACK_CI") != "1":
                    pytest.skip(f"{PACKAGE} cannot be had: {done.stderr.strip()[-200:]}")
                assert done.returncode == 0, done.stderr
                [wheel] = Path(name).glob("*.whl")
                with zipfile.ZipFile(wheel) as packed:
                    packed.extractall(Path(name, "package"))
                Path(name, "package").rename(folder)
    done = subprocess.run([sys.executable, "-c", _SCHEMAS, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    task, resources = json.loads(done.stdout)
    return task, resources


@pytest.mark.images
def test_it_follows_skypilots_schemas(schemas: tuple[dict[str, Any], dict[str, Any]]) -> None:
    task, resources = (jsonschema.Draft202012Validator(schema) for schema in schemas)
    made = yaml.safe_load(sky.task("sm90"))
    assert [error.message for error in task.iter_errors(made)] == []
    assert [error.message for error in resources.iter_errors(made["resources"])] == []
    assert [*task.iter_errors(made | {"runs": ""})] != []
    assert [*resources.iter_errors(made["resources"] | {"gpu": 1})] != []


def test_its_scripts_are_shell(tmp_path: Path) -> None:
    made = yaml.safe_load(sky.task("sm90"))
    for script in (made["setup"], made["run"]):
        assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0
    assert "~/pack-sm90.tar.xz" in made["file_mounts"]
    assert made["resources"]["autostop"]["down"] is True  # a forgotten machine costs money


def test_it_is_written_once(proved: Proved) -> None:
    given = ("matrix", "init", "--sky", "sm90", "--json")
    assert json.loads(proved.run(*given).out)["changed"] is True
    assert json.loads(proved.run(*given).out)["changed"] is False
    (proved.world.root / "validate-sm90.sky.yaml").write_text("mine")
    assert "is there and differs" in proved.run(*given).refused()
    assert "no GPU 'sm121' is known that can be rented" in proved.run("matrix", "init", "--sky", "sm121").refused()
