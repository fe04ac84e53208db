# SPDX-License-Identifier: Apache-2.0
"""A server of vLLM on this machine, from its start until it has ended, with dummy weights of gpt-oss-120b's dimensions."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.validation.model.config import COMMON, MXFP4
from stack.validation.pack import client
from stack.validation.pack.checks import MODEL
from stack.validation.pack.contents import SITE
from stack.validation.pack.recipes import FORMAT, Recipe

_READY = 480.0
"""Seconds until a server answers: 120 to 302 were measured, by the host."""
_GENTLE = 20.0
"""Seconds to end by itself once it is told to."""
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
    "--max-cudagraph-capture-size": "64",  # twice what runs at once; the default for gpt-oss captures 83 sizes, in half a minute
    "--gpu-memory-utilization": "0.9",  # of 80 GB, 0.85 left upstream's padded experts 0.45 GB too few for a cache
}
_PROFILER = {
    # Kernels only, and of the process that has the GPU only; asleep until it is told to look.
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
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # compiles for two minutes when it is first used, and the likeliest token needs none
    "VLLM_SYSTEM_START_DATE": "2025-01-01",  # harmony's system message holds the date
}


class NotServing(StackError):
    """A server that does not come to answer."""


class TooLate(StackError):
    """A server that did not answer before the time was up."""


@dataclass(frozen=True, slots=True)
class Server:
    """One that answers: its port, how long it took, and where its log is."""

    port: int
    seconds: float
    log: Path

    def said(self) -> str:
        """Its log until now."""
        return self.log.read_text(encoding="utf-8", errors="replace")


def model(folder: Path) -> Path:
    """A folder as of a checkpoint, with everything but weights."""
    place = folder / MODEL
    if not (place / "config.json").exists():
        from stack.validation.model import vocabulary  # noqa: PLC0415 - needs what only the machine of the archive has

        place.mkdir(parents=True, exist_ok=True)
        vocabulary.write(place)
        (place / "config.json").write_text(json.dumps(CONFIG, indent=1))
    return place


def python_path(root: Path, recipe: Recipe, work: Path) -> str:
    """Python's path for a recipe: where it leaves patches out, with a copy of vLLM that lacks them."""
    lacking = root / "without" / recipe.name
    site = root / SITE
    places = [root / "tools"]
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
def serving(root: Path, recipe: Recipe, work: Path, until: float | None = None) -> Iterator[Server]:
    """A server by a recipe; when the block ends it has ended, with all of its processes.

    `until`: of `time.monotonic`, when nobody waits for it any more.

    Raises:
        NotServing: it does not come to answer; the last lines of its log say why.
        TooLate: the time was up before it answered.

    """
    place = model(work)
    port = _free_port()
    log = work / f"{recipe.name}.log"
    # A compiled graph is found again by less than what it depends on: each recipe has its own.
    environment = os.environ | _ENVIRONMENT | {"PYTHONPATH": python_path(root, recipe, work)}
    environment["VLLM_CACHE_ROOT"] = str(work / f"cache-{recipe.name}")
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(place), "--served-model-name", MODEL]
    command += ["--load-format", FORMAT, "--host", "127.0.0.1", "--port", str(port), "--no-enable-prefix-caching"]
    command += [*(part for pair in _ARGUMENTS.items() for part in pair), *recipe.arguments]
    if recipe.profiled:
        command += ["--profiler-config", json.dumps(_PROFILER | {"torch_profiler_dir": str(traces(work, recipe))})]
    begun = time.monotonic()
    with log.open("wb") as written:
        process = subprocess.Popen(
            command,
            stdout=written,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_with_us,  # noqa: PLW1509 - no other thread runs yet
        )
    try:
        _wait(process, port, log, begun, until)
        yield Server(port, time.monotonic() - begun, log)
    finally:
        _end(process)


def traces(work: Path, recipe: Recipe) -> Path:
    """Where a recipe's server puts what its profiler sees."""
    return work.absolute() / f"profile-{recipe.name}"


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path, begun: float, until: float | None) -> None:
    while (now := time.monotonic()) - begun < _READY:
        if process.poll() is not None:
            raise NotServing(f"the server ended with {process.returncode}: {_last(log)}", "see its log")
        with contextlib.suppress(OSError):
            if client.call(port, "GET", "/health")[0] == 200:
                return
        if until is not None and now > until:
            raise TooLate(f"the time was up before its server answered, after {now - begun:.0f} s: see {log}")
        time.sleep(0.5)
    raise NotServing(f"the server does not answer after {_READY:.0f} s: {_last(log)}", "see its log")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the server and what it started: all of them are of its session."""
    for how, wait in ((signal.SIGTERM, _GENTLE), (signal.SIGKILL, _GENTLE)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _with_us() -> None:
    """Linux tells the server to end when whoever started it is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _last(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])[-4000:]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
