# SPDX-License-Identifier: Apache-2.0
"""Run llama-benchy against a server, and verify the server's claims with the text that it sent."""

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.proof import environment
from stack.validation import texts
from stack.validation.serve import parent_watchdog

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PATIENCE = 900.0
"""Seconds without a finished request after which the server counts as hung; the first request may compile kernels for minutes."""

SHARE = 0.5
"""Share of the requested tokens that must arrive as text. The others are control tokens of the conversation's format.

They take time and are not counted, so they never raise the speed. Of 32 tokens of gpt-oss about 29 are text.
"""
_RETOKENISED = 2.0
"""Factor by which tokens counted from the text may differ from the generated ones: random text is tokenized differently."""
_PROMPT = 0.05, 16
"""Tolerance for a prompt's size: a share of it, and the tokens of a chat template."""
ROOM = 128
"""Tokens that a conversation's format may add to a prompt."""
_TICK = 0.2
_KEY = "STACK_BENCH_KEY"
_WITH_KEY = f"""
import os, runpy, sys
key = os.environ.pop({_KEY!r}, None)
sys.argv = ["llama-benchy", *sys.argv[1:], *(["--api-key", key] if key else [])]
runpy.run_module("llama_benchy", run_name="__main__")
"""
"""Run llama-benchy with a key from the environment: it takes it as an argument only, which every user of the machine can read."""


class UnmeasuredError(Exception):
    """Raised when a run must not become a number; says why."""


class TooShortError(Exception):
    """Raised when a size takes too little time to be measured; says what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """The measured server: its `/v1` address, the model's served name, and its tokenizer.json.

    `share` is the part of the requested tokens that must arrive as text. `key` is the API key, if the server wants one.
    """

    url: str
    model: str
    tokenizer: Path
    share: float = SHARE
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Size:
    """A size: tokens of the prompt, tokens of the answer, and number of runs."""

    prompt: int
    answer: int
    runs: int

    @property
    def name(self) -> str:
        """Its name in tables, such as pp512-tg32."""
        return f"pp{self.prompt}-tg{self.answer}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a size, one value per run.

    `came`: tokens that arrived as text. `prefill`, `decode`: tokens per second. `peak`: those of the answer's best second.
    `ttfr`, `est_ppt`, `e2e_ttft`: milliseconds.
    """

    size: Size
    came: tuple[float, ...]
    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    peak: tuple[float, ...]
    ttfr: tuple[float, ...]
    est_ppt: tuple[float, ...]
    e2e_ttft: tuple[float, ...]


def python(cache: Path, tell: Progress) -> Path:
    """Return the interpreter of llama-benchy's environment, which the first call builds.

    Raises:
        StackError: pip could not install a package.

    """
    return environment.listed(cache, "bench", REQUIREMENTS, "installing llama-benchy (100 MB)", tell)


def version(interpreter: Path) -> str:
    """Return the version of llama-benchy in an environment.

    Raises:
        StackError: it is not installed there.

    """
    code = "from importlib.metadata import version; print(version('llama-benchy'))"
    done = subprocess.run([str(interpreter), "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(
            f"llama-benchy is missing in {interpreter}", f"remove {interpreter.parents[1]} and run the command again"
        )
    return done.stdout.strip()


def measure(interpreter: Path, target: Target, size: Size, tell: Callable[[int], None], patience: float = PATIENCE) -> Measured:
    """Measure one size; `tell` gets the number of finished requests.

    Raises:
        UnmeasuredError: a request failed or hung, or the server's claims differ from what it sent.
        TooShortError: the prompt takes less time than any answer of the server.

    """
    with tempfile.TemporaryDirectory(prefix="stack-bench-") as place:
        folder = Path(place)
        progress, result = folder / "progress.jsonl", folder / "result.json"
        address = _shelve(folder)
        command = [
            *(str(interpreter), "-c", _WITH_KEY, "--base-url", target.url, "--model", target.model),
            *("--tokenizer", str(target.tokenizer), "--book-url", address, "--skip-coherence", "--exact-tg"),
            *("--pp", str(size.prompt), "--tg", str(size.answer), "--runs", str(size.runs)),
            *("--format", "json", "--save-result", str(result), "--emit-progress", str(progress)),
        ]
        _run(command, folder, progress, tell, patience, target.key)
        requests = _counted(interpreter, target.tokenizer, progress)
        for number, request in enumerate(requests, 1):
            _check(request, number, size, target)
        if len(requests) != size.runs:
            raise UnmeasuredError(f"{len(requests)} of {size.runs} requests were made")
        return _read(result, size, tuple(float(request["total_tokens"]) for request in requests))


def _shelve(home: Path) -> str:
    """Store the book in llama-benchy's cache, so that it is not downloaded; return the address that names it."""
    address = "stack:book"
    shelf = home / ".cache/llama-benchy"
    shelf.mkdir(parents=True)
    name = hashlib.md5(address.encode(), usedforsecurity=False).hexdigest()
    (shelf / f"{name}.txt").write_text(texts.book(), encoding="utf-8")
    return address


def _run(
    command: Sequence[str], home: Path, progress: Path, tell: Callable[[int], None], patience: float, key: str | None
) -> None:
    # Offline: if the tokenizer does not load, it must not be replaced by another one from the network.
    settings = {"HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    settings |= {_KEY: key} if key is not None else {}
    log = home / "log"
    with log.open("wb") as output, parent_watchdog.kept(command, _near(settings), output, home) as child:
        ended = _watch(child, progress, tell, patience)
    text = log.read_text(encoding="utf-8", errors="replace")
    if not ended:
        raise UnmeasuredError(f"no request ended for {patience:.0f} s\n{_tail(text)}")
    if child.returncode or "Falling back to 'gpt2'" in text:
        raise UnmeasuredError(f"llama-benchy ended with {child.returncode}\n{_tail(text)}")


def _near(settings: dict[str, str]) -> dict[str, str]:
    """Return the environment with `settings`, and without a proxy for this machine."""
    local = "localhost,127.0.0.1,::1"
    around = ",".join(filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), local)))
    return {**os.environ, **settings, "no_proxy": around, "NO_PROXY": around}


def _watch(child: "subprocess.Popen[bytes]", progress: Path, tell: Callable[[int], None], patience: float) -> bool:
    """Wait for the end; return False if no request finished for too long."""
    done, since = 0, time.monotonic()
    while child.poll() is None:
        time.sleep(_TICK)
        now = progress.read_bytes().count(b'"type":"request_end"') if progress.exists() else 0
        if now != done:
            done, since = now, time.monotonic()
            tell(done)
        if time.monotonic() - since > patience:
            return False
    return True


def _counted(interpreter: Path, tokenizer: Path, progress: Path) -> list[dict[str, Any]]:
    command = [str(interpreter), str(Path(__file__).with_name("counting.py")), str(tokenizer), str(progress)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnmeasuredError(f"the tokens could not be counted\n{_tail(done.stderr)}")
    requests: list[dict[str, Any]] = json.loads(done.stdout)
    return requests


def _check(request: dict[str, Any], number: int, size: Size, target: Target) -> None:
    """Refuse a request that must not become a number.

    A server may claim how many tokens it read and generated, and llama-benchy believes it within limits.

    Raises:
        UnmeasuredError: the request failed, ended early, or its counts contradict each other.

    """
    where = f"request {number} of {size.name}"
    if not request["ended"] or request["error"]:
        raise UnmeasuredError(f"{where} failed: {request.get('error') or 'it did not end'}")
    made, counted, prompt = request["total_tokens"], request["counted"], request["prompt_tokens"]
    if not request["chunks"]:
        raise UnmeasuredError(f"{where} brought no text; the server claims {made} tokens")
    if not target.share * size.answer <= made <= size.answer:
        raise UnmeasuredError(f"{where} brought {made} tokens, requested were {size.answer}")
    if not made / _RETOKENISED <= counted <= made * _RETOKENISED:
        raise UnmeasuredError(f"{where}: the server claims {made} tokens, its text has {counted}")
    share, template = _PROMPT
    if prompt and abs(prompt - size.prompt) > share * size.prompt + template:
        raise UnmeasuredError(f"{where}: the server claims to have read {prompt} tokens, about {size.prompt} were sent")


def _read(result: Path, size: Size, came: tuple[float, ...]) -> Measured:
    try:
        [benchmark] = json.loads(result.read_text(encoding="utf-8"))["benchmarks"]
        kinds = ("pp_throughput", "tg_throughput", "peak_throughput", "ttfr", "est_ppt", "e2e_ttft")
        # llama-benchy omits a kind that no run has, such as the speed of a prompt that took less time than the latency.
        values = [tuple(float(value) for value in (benchmark[kind] or {"values": ()})["values"]) for kind in kinds]
    except (OSError, ValueError, KeyError, TypeError) as odd:
        raise UnmeasuredError(f"llama-benchy's result has an unknown form ({odd})") from odd
    if min(values[kinds.index("est_ppt")], default=0) <= 0:
        raise TooShortError(f"{size.prompt} tokens take less time than the list of the server's models: measure more")
    for kind, runs in zip(kinds, values, strict=True):
        if len(runs) != size.runs or min(runs) <= 0:
            raise UnmeasuredError(f"{size.name}: {kind} is not a number above 0 in each of {size.runs} runs: {list(runs)}")
    return Measured(size, came, *values)


def _tail(words: str) -> str:
    return "\n".join(words.strip().splitlines()[-6:])
