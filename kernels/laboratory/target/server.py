# SPDX-License-Identifier: Apache-2.0
"""Run a vLLM server on this machine with dummy weights of gpt-oss-120b's dimensions."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laboratory.target import client
from laboratory.target.checks import MODEL
from stack.base import addresses
from stack.base.errors import StackError
from stack.validation import laboratory
from stack.validation.model.config import COMMON, MXFP4
from stack.validation.pack import targets
from stack.validation.pack.contents import SITE
from stack.validation.pack.recipes import FORMAT, Recipe
from stack.validation.pack.targets import Target
from stack.validation.serve import parent_watchdog

CONFIG: dict[str, Any] = COMMON | {
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": MXFP4,
}
_ARGUMENTS = {
    "--max-model-len": "16384",
    "--max-num-seqs": "32",
    "--max-cudagraph-capture-size": "64",  # twice the concurrent requests; gpt-oss's default captures 83 sizes in half a minute
}
_PROFILER = {
    # Record only kernels, only in the process that uses the GPU, and only between the requests to start and to stop.
    "profiler": "torch",
    "torch_profiler_activities": ["CUDA"],
    "ignore_frontend": True,
    "torch_profiler_with_stack": False,
    "torch_profiler_use_gzip": False,
    "torch_profiler_dump_cuda_time_total": False,
}
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it compiles for two minutes on first use, and greedy decoding does not need it
    "VLLM_SYSTEM_START_DATE": "2025-01-01",  # harmony's system message contains the date
}


class NotServing(StackError):
    """Raised when a server does not become ready."""


class TooLate(StackError):
    """Raised when the time was up before a server was ready."""


@dataclass(frozen=True, slots=True)
class Server:
    """A ready server: its port, the seconds it took to start, and its log."""

    port: int
    seconds: float
    log: Path

    def log_text(self) -> str:
        """Read its log up to now."""
        return self.log.read_text(encoding="utf-8", errors="replace")


def model(folder: Path) -> Path:
    """Make a folder with everything of a checkpoint but weights."""
    place = folder / MODEL
    if not (place / "config.json").exists():
        from stack.validation.model import vocabulary  # noqa: PLC0415 - its imports exist only on the machine of the archive

        place.mkdir(parents=True, exist_ok=True)
        vocabulary.write(place)
        (place / "config.json").write_text(json.dumps(CONFIG, indent=1))
    return place


def python_path(root: Path, recipe: Recipe, work: Path) -> str:
    """Return Python's path for a recipe. If it leaves patches out, the path begins with a copy of vLLM without them."""
    lacking = root / "without" / recipe.name
    site = root / SITE
    places = [root / "tools", root / laboratory.HOME]
    if recipe.without:
        copy = work / f"{SITE}-{recipe.name}"
        if not copy.exists():
            shutil.copytree(site / "vllm", copy / "vllm", copy_function=os.link)
            for path in sorted(lacking.rglob("*.py")):
                place = copy / path.relative_to(lacking)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.unlink(missing_ok=True)
                shutil.copyfile(path, place)
        return os.pathsep.join(map(str, (copy, site, *places)))
    return os.pathsep.join(map(str, (site, *places)))


@contextlib.contextmanager
def serving(
    root: Path, recipe: Recipe, work: Path, until: float | None = None, target: Target = targets.SM90
) -> Iterator[Server]:
    """Run a server by a recipe. At the end of the block it has stopped with all of its processes.

    `until` is the time, by `time.monotonic`, when waiting for it ends. `target`: the machine.

    Raises:
        NotServing: it does not become ready; the error has the last lines of its log.
        TooLate: the time was up before it was ready.

    """
    place = model(work)
    port = addresses.free_port()
    log = work / f"{recipe.name}.log"
    # vLLM's key for compiled graphs misses a part of what they depend on, so each recipe gets its own cache.
    environment = os.environ | _ENVIRONMENT | dict(target.environment) | {"PYTHONPATH": python_path(root, recipe, work)}
    environment["VLLM_CACHE_ROOT"] = str(work / f"cache-{recipe.name}")
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(place), "--served-model-name", MODEL]
    command += ["--load-format", FORMAT, "--host", "127.0.0.1", "--port", str(port), "--no-enable-prefix-caching"]
    command += [*(part for pair in _ARGUMENTS.items() for part in pair), *recipe.arguments]
    command += ["--gpu-memory-utilization", str(target.share)]
    if recipe.profiled:
        command += ["--profiler-config", json.dumps(_PROFILER | {"torch_profiler_dir": str(traces(work, recipe))})]
    begun = time.monotonic()
    with log.open("wb") as written, parent_watchdog.kept(command, environment, written, Path.cwd()) as process:
        _wait(process, port, log, begun, until, target.patience)
        yield Server(port, time.monotonic() - begun, log)


def traces(work: Path, recipe: Recipe) -> Path:
    """Return the folder for the profiler traces of a recipe's server."""
    return work.absolute() / f"profile-{recipe.name}"


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path, begun: float, until: float | None, patience: float) -> None:
    while (now := time.monotonic()) - begun < patience:
        if process.poll() is not None:
            raise NotServing(f"the server ended with {process.returncode}: {_last(log)}", "see its log")
        with contextlib.suppress(OSError):
            if client.call(port, "GET", "/health")[0] == 200:
                return
        if until is not None and now > until:
            raise TooLate(
                f"the time was up before its server answered, after {now - begun:.0f} s: see {log.parent.name}/{log.name}"
            )
        time.sleep(0.5)
    raise NotServing(f"the server does not answer after {patience:.0f} s: {_last(log)}", "see its log")


def _last(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])[-4000:]
