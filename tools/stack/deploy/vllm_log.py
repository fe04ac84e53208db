# SPDX-License-Identifier: Apache-2.0
"""Read a vLLM server's log: what runs in which configuration, how long the start took, and what was refused and why.

Patterns match the texts of vLLM 0.32.0; a comment names the file that writes a line. If a later release changes a text, its fact counts
as missing. Logs come from terminals, files, containers and pipes: with colours and progress bars, and cut anywhere.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType

from stack.base.prefilter import Prefilter, form
from stack.deploy.recipes import Backends

PARTS = ("MoE", "MoE decode", "linear", "attention")
"""The parts of a model whose backends a log names."""
UNSAID = "not said"
"""Text for a fact that a log does not contain."""
_LONGEST = 2**14
"""Characters of a line that are read; vLLM's own lines have up to some thousands."""
_FRONT = 400
"""Number of first characters in which a line's record must begin: container engines put a prefix before it."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PROCESS = re.compile(r"\(([\w.-]+)(?: rank=\d+)? pid=(\d+)(?:, ip=[^)]{1,60})?\) ?")
# logger.py; at DEBUG level it writes a path instead of a file name. Old versions write no process, and no bracket before the place.
_RECORD = re.compile(
    r"(?:\((?P<process>[\w.-]+)(?: rank=\d+)? pid=\d+(?:, ip=[^)]{1,60})?\) )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<at>\d\d-\d\d \d\d:\d\d:\d\d) \[?(?P<place>[^\[\]\s]{1,200})\] ?"
)
_BLOCK = 256
"""Number of lines that are searched for words together."""
_CONTAINER = re.compile(r"[\w.-]+ +\| ?")
"""Prefix of `docker compose logs`."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log: number (from 1, as in an editor), process, level, time, source file, and text.

    A field that the line does not contain is empty. `form`: of the text, for `stack.base.prefilter`.
    """

    number: int
    process: str
    level: str
    at: str
    place: str
    text: str
    form: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Named:
    """A name in the log: the name, the thing it belongs to in the log's words (`of`), and the line."""

    name: str
    of: str
    line: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A backend that was not chosen for a part (of `PARTS`), with the log's reason; empty if it gives none."""

    part: str
    name: str
    why: str
    line: int


@dataclass(frozen=True, slots=True)
class Cache:
    """The KV cache: type of its values, size in tokens and GiB, longest request in tokens, and how many of these fit in."""

    kind: str | None = None
    tokens: int | None = None
    gib: float | None = None
    longest: int | None = None
    concurrency: float | None = None


@dataclass(frozen=True, slots=True)
class Graphs:
    """CUDA graphs: whether they are used, their mode, the log's reason if not, and the seconds and GiB of their capture."""

    on: bool | None = None
    mode: str | None = None
    why: str | None = None
    seconds: float | None = None
    gib: float | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """Seconds of a phase of the start: the sum within a process, and the slowest of several processes."""

    name: str
    seconds: float
    line: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The facts that a log contains about the server's last start; a missing fact is None or empty.

    `starts`: number of starts. `lines`: lines of the whole log. `dtype`: of activations. `compiled`: whether torch.compile was used.
    `weights`: GiB of the model on a device. `ready`: whether it serves; `stage`: its last activity. `unknown`: environment variables
    that this vLLM does not know. `fallbacks`: lines about a fallback to something that was not requested.
    """

    starts: int = 0
    lines: int = 0
    version: str | None = None
    model: str | None = None
    context: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    moe: tuple[Named, ...] = ()
    decode: tuple[Named, ...] = ()
    linear: tuple[Named, ...] = ()
    attention: tuple[Named, ...] = ()
    refused: tuple[Refused, ...] = ()
    cache: Cache = Cache()
    graphs: Graphs = Graphs()
    compiled: bool | None = None
    weights: float | None = None
    phases: tuple[Phase, ...] = ()
    unknown: tuple[Named, ...] = ()
    fallbacks: tuple[Line, ...] = ()
    error: Line | None = None
    address: str | None = None
    headless: bool = False
    ready: bool = False
    stage: str | None = None

    def named(self, part: str) -> tuple[Named, ...]:
        """Return the backends that were chosen for a part (of `PARTS`)."""
        return {"MoE": self.moe, "MoE decode": self.decode, "linear": self.linear, "attention": self.attention}[part]

    def seconds(self, name: str) -> float | None:
        """Return the seconds of a phase."""
        return next((phase.seconds for phase in self.phases if phase.name == name), None)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A difference between a server and its recipe: part, expected value, found value, and the log's reasons."""

    part: str
    expected: str
    found: str
    why: tuple[str, ...] = ()


def lines(text: str) -> Iterator[Line]:
    """Split a log into lines, without colours and container prefixes; each state of a progress bar is a line of its own."""
    for number, whole in enumerate(text.split("\n"), 1):
        for piece in whole.split("\r"):
            if piece.strip():
                yield line(piece, number)


def line(text: str, number: int = 0) -> Line:
    """Parse one line of a log."""
    plain = text[: 2 * _LONGEST]
    plain = (_ANSI.sub("", plain) if "\x1b" in plain else plain)[:_LONGEST].rstrip()
    front = plain[:_FRONT]
    # Most lines without a record have no level either: searching for the words is faster than for the record.
    has_level = "INFO " in front or "WARNING " in front or "ERROR " in front or "DEBUG " in front or "CRITICAL " in front
    record = _RECORD.search(plain, 0, _FRONT) if has_level else None
    if record is not None:
        process = record["process"] or ""
        text_ = plain[record.end() :]
        return Line(number, process, record["level"], record["at"], record["place"], text_, form(text_))
    if container := _CONTAINER.match(plain, 0, _FRONT):
        plain = plain[container.end() :]
    process = _PROCESS.match(plain)
    rest = plain[process.end() :] if process else plain
    return Line(number, process[1] if process else "", "", "", "", rest, form(rest))


@lru_cache(8192)
def time(at: str) -> datetime | None:
    """Return a line's time, `MM-DD hh:mm:ss`; None if it is not one. Logs have no year: take one with a 29 February."""
    try:
        return datetime(2024, int(at[:2]), int(at[3:5]), int(at[6:8]), int(at[9:11]), int(at[12:14]))
    except ValueError:
        return None


_STAGES = MappingProxyType(
    {
        "Initializing a V1 LLM engine": "starting the engine",  # v1/engine/core.py
        "Building JIT module": "compiling kernels",  # flashinfer/jit/core.py; follows the rest of a progress bar in its line
        "Starting to load model": "loading the model",  # v1/worker/gpu_model_runner.py
        "Loading model from scratch": "loading the model",  # v1/worker/gpu/model_runner.py
        "Loading safetensors checkpoint shards": "loading the weights",  # model_executor/model_loader/weight_utils.py
        "Model loading took": "measuring memory",
        "Starting torch.compile": "compiling",  # compilation/monitor.py
        "Warming up model for the compilation": "compiling",  # v1/worker/cpu_model_runner.py
        "JIT kernel warmup starting": "compiling kernels",  # model_executor/warmup/kernel_warmup.py
        "Autotuning process starts": "tuning kernels",  # flashinfer/autotuner.py
        "Capturing CUDA graphs": "capturing graphs",  # v1/worker/gpu_model_runner.py
        "Starting vLLM server on": "starting to serve",  # entrypoints/launchers/api_server/entry.py
        "Application startup complete": "ready",  # uvicorn
    }
)


def stage(entry: Line) -> str | None:
    """Return the activity that begins with a line; None if the line begins none."""
    return next((name for words, name in _STAGES.items() if words in entry.text), None)


def progress(entry: Line) -> tuple[int, int] | None:
    """Return the position and the total of a progress bar; None if the line is not a progress bar."""
    found = _BAR.search(entry.text)
    return (int(found[1]), int(found[2])) if found is not None else None


def read(text: str) -> Reading:
    """Read a whole log. The time is proportional to its length, whatever its content."""
    return read_lines([*lines(text)], text.count("\n") + 1 if text else 0)


def read_lines(entries: Sequence[Line], count: int) -> Reading:
    """Read the lines of a whole log, which has `count` lines with the empty ones."""
    collected, starts = _Collector(), 0
    prefilter = Prefilter(_WORDS)
    for start in range(0, len(entries), _BLOCK):
        block = entries[start : start + _BLOCK]
        for entry, words in zip(block, prefilter.possible([each.form for each in block]), strict=True):
            if _BLACK in words and _BANNER.search(entry.text):
                starts, collected = starts + 1, _Collector()
            collected.take(entry, words)
    return collected.reading(max(starts, 1 if entries else 0), count)


def mismatches(reading: Reading, expected: Backends) -> tuple[Mismatch, ...]:
    """List how a server's log differs from a recipe; a part that the recipe does not name may be anything."""
    found = [_other(reading, part, name) for part, name in wanted(expected).items()]
    if expected.kv is not None and reading.cache.kind != expected.kv:
        found.append(Mismatch("KV cache", expected.kv, reading.cache.kind or UNSAID))
    if expected.graphs is not None and reading.graphs.on is not expected.graphs:
        words = {True: "on", False: "off", None: UNSAID}
        why = (reading.graphs.why,) if reading.graphs.why else ()
        found.append(Mismatch("graphs", words[expected.graphs], words[reading.graphs.on], why))
    return tuple(mismatch for mismatch in found if mismatch is not None)


def wanted(expected: Backends) -> Mapping[str, str]:
    """Return the expected backend of each part (of `PARTS`) that a recipe names."""
    named = (expected.moe, expected.decode, expected.linear, expected.attention)
    return {part: name for part, name in zip(PARTS, named, strict=True) if name is not None}


def _other(reading: Reading, part: str, expected: str) -> Mismatch | None:
    """Compare the backends of a part. Layers of one kind have one backend, but layers of different kinds may have different ones."""
    named = reading.named(part)
    kinds = {backend.of for backend in named if backend.name == expected}
    if kinds and all(backend.name == expected or backend.of not in kinds for backend in named):
        return None
    refused = [refusal for refusal in reading.refused if refusal.part == part]
    refused = [refusal for refusal in refused if refusal.name == expected] or refused
    why = [f"{refusal.name}: {refusal.why or 'no reason given'}" for refusal in refused]
    why += [entry.text for entry in reading.fallbacks if part.lower() in entry.text.lower()]
    found = ", ".join(dict.fromkeys(backend.name for backend in named)) or UNSAID
    return Mismatch(part, expected, found, tuple(dict.fromkeys(why)))


_BAR = re.compile(r"\| (\d{1,15})/(\d{1,15}) \[")  # tqdm
_BANNER = re.compile(r"█\s+version (\S+)")  # entrypoints/utils/api_utils.py
_ERROR = re.compile(r"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)(?:: |$)|(?:[\w. ]+: )?error: (?:argument|unrecognized) ")
"""The line of a traceback that names the error, or an error of argparse."""
_SETTING = re.compile(
    r"\b(model|dtype|max_seq_len|quantization|kv_cache_dtype)=('[^']*'|[\w.]+)(?=,)|'(cudagraph_mode|mode)': <\w+\.(\w+): "
)
_REASON = re.compile(
    r"\s*(?:(?P<a>\w+) cannot implement due to: (?P<b>.+)|(?P<c>\w+) (?P<d>disabled by environment variable|requires capability .+)"
    r"|(?P<e>\w*Kernel): (?P<f>.+))$"
)


@dataclass(slots=True)
class _Collector:
    """The facts that were found so far."""

    values: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    named: dict[str, dict[tuple[str, str], Named]] = field(default_factory=lambda: {part: {} for part in PARTS})
    refused: dict[tuple[str, str, str], Refused] = field(default_factory=dict)
    phases: dict[str, Phase] = field(default_factory=dict)
    spent: dict[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of a phase in a process so far. Graphs are captured twice: the first capture measures the memory that they take."""
    unknown: dict[str, Named] = field(default_factory=dict)
    fallbacks: dict[str, Line] = field(default_factory=dict)
    graphs: Graphs = Graphs()
    error: Line | None = None
    began: datetime | None = None
    last: datetime | None = None
    stage: str | None = None
    ending: bool = False
    listing: tuple[str, str] | None = None
    """The kind of linear layers, and the process, whose reasons the following lines list."""

    def take(self, entry: Line, possible: Collection[str]) -> None:
        """Read a line; `possible`: the words of `_WORDS` that may stand in it."""
        if entry.at:
            self._clock(entry.at)
        if self.listing is not None and not self._listed(entry):
            self.listing = None
        if not possible:
            return
        self.stage = next((_STAGES[word] for word in possible if word in _STAGES and word in entry.text), self.stage)
        self.ending = self.ending or ("[shutdown]" in entry.text and "unexpectedly" not in entry.text)
        if self.error is None and not self.ending and entry.level in ("", "ERROR", "CRITICAL") and _ERROR.match(entry.text):
            self.error = entry  # errors about its engine during a shutdown do not count
        for place in sorted({place for word in possible for place in _BY_WORD.get(word, ())}):
            words, pattern, taken = _PATTERNS[place]
            if words in entry.text and (match := pattern.search(entry.text)):
                taken(self, match, entry)

    def _clock(self, at: str) -> None:
        now = time(at)
        if now is None:
            return
        self.began = self.began or now
        self.last = max(self.last or now, now) if now >= self.began - timedelta(days=1) else now + timedelta(days=366)

    def _listed(self, entry: Line) -> bool:
        assert self.listing is not None
        reason = _REASON.match(entry.text)
        if reason is None or entry.process != self.listing[1]:
            return False
        name = reason["a"] or reason["c"] or reason["e"]
        self.refuse("linear", name, (reason["b"] or reason["d"] or reason["f"]).strip(), entry)
        return True

    def name(self, part: str, name: str, of: str, entry: Line) -> None:
        """Note that a backend was chosen."""
        self.named[part].setdefault((name, of), Named(name, of, entry.number))

    def refuse(self, part: str, name: str, why: str, entry: Line) -> None:
        """Note that a backend was refused."""
        self.refused.setdefault((part, name, why), Refused(part, name, why, entry.number))

    def took(self, phase: str, seconds: float, entry: Line) -> None:
        """Add the seconds of a phase that ended."""
        spent = self.spent[phase, entry.process] = self.spent.get((phase, entry.process), 0.0) + seconds
        if phase not in self.phases or self.phases[phase].seconds < spent:
            self.phases[phase] = Phase(phase, spent, entry.number)

    def no_graphs(self, why: str, entry: Line) -> None:
        """Note that graphs are not used; the first reason counts."""
        if self.graphs.on is not False:
            self.graphs = Graphs(on=False, mode="NONE", why=why, line=entry.number)

    def captured(self, seconds: str, gib: str, entry: Line) -> None:
        """Note that graphs were captured."""
        if self.graphs.on is not False:
            self.graphs = Graphs(True, self.graphs.mode, None, float(seconds), float(gib), entry.number)

    def graph_mode(self, mode: str, entry: Line) -> None:
        """Note that graphs get another mode than requested."""
        if mode == "NONE":
            self.no_graphs(entry.text, entry)
        elif self.graphs.on is None:
            self.graphs = Graphs(mode=mode, why=entry.text, line=entry.number)

    def configured(self, entry: Line) -> None:
        """Read the engine's configuration; the first engine's counts."""
        for setting, value, other, name in _SETTING.findall(entry.text):
            self.settings.setdefault(setting or other, name or value.strip("'"))
        mode = self.settings.get("cudagraph_mode")
        if mode == "NONE":
            self.no_graphs("cudagraph_mode is NONE", entry)
        elif mode and self.graphs.mode is None and self.graphs.on is None:
            self.graphs = Graphs(mode=mode, line=entry.number)

    def is_ready(self, entry: Line) -> None:
        """Note that it serves."""
        self.values["ready"] = "yes"
        if self.began is not None and self.last is not None:
            self.took("ready", (self.last - self.began).total_seconds(), entry)

    def reading(self, starts: int, count: int) -> Reading:
        """Return all facts."""
        number: Callable[[str], float | None] = lambda name: float(self.values[name]) if name in self.values else None  # noqa: E731
        whole: Callable[[str], int | None] = lambda name: (  # noqa: E731
            int(self.values[name].replace(",", "")) if name in self.values else None
        )
        dtype = self.settings.get("dtype", "").removeprefix("torch.") or None
        return Reading(
            starts=starts,
            lines=count,
            version=self.values.get("version"),
            model=self.settings.get("model") or self.values.get("model"),
            context=int(length) if re.fullmatch(_WHOLE, length := self.settings.get("max_seq_len", "")) else whole("context"),
            dtype=dtype,
            quantization=_unless_none(self.settings.get("quantization")),
            moe=tuple(self.named["MoE"].values()),
            decode=tuple(self.named["MoE decode"].values()),
            linear=tuple(self.named["linear"].values()),
            attention=tuple(self.named["attention"].values()),
            refused=tuple(self.refused.values()),
            cache=Cache(self._kind(dtype), whole("tokens"), number("gib"), whole("longest"), number("concurrency")),
            graphs=self.graphs,
            compiled=self._compiled(),
            weights=number("weights"),
            phases=tuple(self.phases.values()),
            unknown=tuple(self.unknown.values()),
            fallbacks=tuple(self.fallbacks.values()),
            error=self.error,
            address=self.values.get("address"),
            headless="headless" in self.values,
            ready="ready" in self.values,
            stage=self.stage,
        )

    def _kind(self, dtype: str | None) -> str | None:
        """Return the type of the cache's values; `auto` is the type of the activations."""
        named = self.values.get("kv") or self.settings.get("kv_cache_dtype")
        return dtype if named == "auto" else named

    def _compiled(self) -> bool | None:
        if "compile" in self.phases:
            return True
        mode = self.settings.get("mode")
        return None if mode is None else mode != "NONE"


def _unless_none(value: str | None) -> str | None:
    return None if value == "None" else value


_Action = Callable[[_Collector, "re.Match[str]", Line], None]


def _keeps(*names: str) -> _Action:
    """Make an action that stores a pattern's groups under these names; the first occurrence counts."""

    def taken(found: _Collector, match: "re.Match[str]", _entry: Line) -> None:
        for name, value in zip(names, match.groups(), strict=True):
            found.values.setdefault(name, value)

    return taken


def _names(part: str, of: str = "") -> _Action:
    """Make an action for a chosen backend: the first group is its name, the second, if any, the kind of layers."""

    def taken(found: _Collector, match: "re.Match[str]", entry: Line) -> None:
        found.name(part, match[1], (match[2] or "").strip() if match.re.groups > 1 else of, entry)

    return taken


def _takes(phase: str) -> _Action:
    """Make an action for a finished phase: the last group is its seconds."""
    return lambda found, match, entry: found.took(phase, float(match[match.re.groups]), entry)


def _refuses(part: str) -> _Action:
    """Make an action for a refused backend: the first group is its name, the second the reason."""
    return lambda found, match, entry: found.refuse(part, match[1], _plain(match[2] or ""), entry)


def _refuses_several(part: str, pattern: str) -> _Action:
    """Make an action for several refused backends: the first group lists names and reasons, which `pattern` separates."""
    each = re.compile(pattern)

    def taken(found: _Collector, match: "re.Match[str]", entry: Line) -> None:
        for name, why in each.findall(match[1]):
            found.refuse(part, name, _plain(why), entry)

    return taken


def _plain(why: str) -> str:
    """Remove the quotes and brackets of a list from a reason."""
    return why.strip().strip("[]").replace("'", "").strip().rstrip(".")


def _lists(found: _Collector, match: "re.Match[str]", entry: Line) -> None:
    found.listing = (match[1], entry.process)


def _does_not_know(found: _Collector, match: "re.Match[str]", entry: Line) -> None:
    found.unknown.setdefault(match[1], Named(match[1], "environment variable", entry.number))


def _falls_back(found: _Collector, _match: "re.Match[str]", entry: Line) -> None:
    found.fallbacks.setdefault(entry.text, entry)


_WHOLE, _NUMBER, _COUNT = r"\d{1,15}", r"\d{1,15}(?:\.\d{1,15})?", r"\d{1,15}|\d{1,3}(?:,\d{3}){1,4}"
"""Numbers as vLLM writes them; anything else that looks like a number is ignored."""
_KV = r"(fp8\w*|int8\w*|nvfp4\w*|[\w]+)"
_PATTERNS: tuple[tuple[str, "re.Pattern[str]", _Action], ...] = tuple(
    (words, re.compile(pattern), taken)
    for words, pattern, taken in (
        # entrypoints/utils/api_utils.py, v1/engine/core.py
        ("version ", _BANNER.pattern, _keeps("version")),
        ("model   ", r"█\s+model   (\S+)", _keeps("model")),
        ("Initializing a V1 LLM engine", r"engine \(v(\S+)\) with config: ", _keeps("version")),
        ("with config: model=", r"with config: ", lambda found, _, entry: found.configured(entry)),
        ("Using max model len", rf"Using max model len ({_COUNT})", _keeps("context")),  # config/model.py
        # entrypoints/cli/serve.py, entrypoints/launchers/api_server/entry.py, uvicorn
        ("headless", r"Launching (?:vLLM \(v\S+\)|\d+ data parallel engine\(s\)(?: in)?) (headless)", _keeps("headless")),
        ("Starting vLLM server on", r"Starting vLLM server on (\S+)", _keeps("address")),
        ("Application startup complete", r"", lambda found, _, entry: found.is_ready(entry)),
        # model_executor/layers/fused_moe/oracle/*.py
        (" MoE backend", r"Using '?(\w+)'? (\w+(?: Int8)?) MoE (?:LoRA )?backend\b", _names("MoE")),
        # model_executor/layers/fused_moe/experts/flashinfer_mxfp4_decode_moe.py, of the series mxfp4-moe
        (
            "for MXFP4 experts of",
            r"Using '(\w+)' for MXFP4 experts of (all batches|up to \d{1,5} tokens|fewer than \d{1,5} tokens)",
            _names("MoE decode"),
        ),
        (
            "does not support the deployment configuration",
            r"MoE backend '?(\w+)'? does not support the deployment configuration(?: since (.*?))?\.?$",
            _refuses("MoE"),
        ),
        (
            "Unsupported reasons:",
            r"Unsupported reasons: (.*)",
            _refuses_several("MoE", r"backend: (\w+), reason: (.*?)(?:; (?=backend: )|\. *$|$)"),
        ),
        # model_executor/kernels/linear/__init__.py
        (
            "Using ",
            r"Using (\w*Kernel) for (MXFP4 GEMM|MXFP6 GEMM|MXFP8 GEMM|NVFP4 GEMM|mixed-precision linear)",
            _names("linear"),
        ),
        ("Selected ", r"Selected (\w*Kernel) for (\S+)", _names("linear")),
        ("Failed to find a kernel", r"can implement the (.{1,200}?) linear layer\. Reasons:", _lists),
        ("Tried to force", r"Tried to force (\w+), but (the kernel couldn't be implemented)", _refuses("linear")),
        # platforms/cuda.py, rocm.py, cpu.py: the name is an enumeration's, with or without its class
        (
            " backend",
            r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+)(?: attention)? backend(?:\.$| out of potential| \(selected via)",
            _names("attention", "attention"),
        ),
        (
            "Selected backend",
            r"Selected backend (?:AttentionBackendEnum\.)?(\w+) is not valid for this configuration\. Reason: (.*)",
            _refuses("attention"),
        ),
        (
            "Reasons: {",
            r"attention backends? (?:are not valid|found) for .{0,1000}? Reasons: \{(.*)",
            _refuses_several("attention", r"\b(\w+): \[([^\[\]]*)\](?:, |\}|$)"),
        ),
        ("Cannot use ", r"Cannot use (?:AttentionBackendEnum\.)?(\w+) backend (on CPU)", _refuses("attention")),
        # config/cache.py, v1/worker/gpu_worker.py, cpu_worker.py, v1/core/kv_cache_utils.py
        ("data type to store kv cache", rf"Using {_KV} data type to store kv cache", _keeps("kv")),
        ("Available KV cache memory", rf"Available KV cache memory: ({_NUMBER}) GiB", _keeps("gib")),
        ("for KV cache on node", rf"\(({_NUMBER})/{_NUMBER}\) GiB for KV cache on node", _keeps("gib")),
        ("vLLM API server version", r"vLLM API server version (\S+)", _keeps("version")),  # until 0.11
        # Two lines until 0.25.
        ("KV cache size:", rf"KV cache size: ({_COUNT}) tokens", _keeps("tokens")),
        (
            "Maximum concurrency for",
            rf"^Maximum concurrency for ({_COUNT}) tokens per request: ({_NUMBER})x",
            _keeps("longest", "concurrency"),
        ),
        (
            "KV cache size:",
            rf"KV cache size: ({_COUNT}) tokens, Maximum concurrency for ({_COUNT}) tokens per request: ({_NUMBER})x",
            _keeps("tokens", "longest", "concurrency"),
        ),
        # config/vllm.py, config/compilation.py, v1/worker/gpu_model_runner.py
        ("Enforce eager set", r"", lambda found, _, entry: found.no_graphs("enforce_eager is set", entry)),
        ("Cudagraph is disabled under eager mode", r"", lambda found, _, entry: found.no_graphs("enforce_eager is set", entry)),
        ("Skipping CUDA graph capture", r"", lambda found, _, entry: found.no_graphs(entry.text, entry)),
        (
            "setting cudagraph_mode=",
            r"setting cudagraph_mode=(\w+)",
            lambda found, match, entry: found.graph_mode(match[1], entry),
        ),
        (
            "udagraph mode ",
            r"Overriding to (?:CUDAGraphMode\.)?(\w+)\.",
            lambda found, match, entry: found.graph_mode(match[1], entry),
        ),
        (
            "Graph capturing finished",
            rf"^Graph capturing finished in ({_NUMBER}) secs, took (-?{_NUMBER}) GiB",
            lambda found, match, entry: found.captured(match[1], match[2], entry),
        ),
        # model_executor/model_loader, compilation/monitor.py, model_executor/warmup/kernel_warmup.py, v1/engine/core.py
        (
            "Time spent downloading weights",
            rf"Time spent downloading weights for .{{1,300}}: ({_NUMBER}) seconds",
            _takes("download"),
        ),
        ("Loading weights took", rf"Loading weights took ({_NUMBER}) seconds", _takes("load")),
        ("Model loading took", rf"Model loading took ({_NUMBER}) GiB memory and {_NUMBER} seconds", _keeps("weights")),
        ("Model loading took", rf"Model loading took {_NUMBER} GiB memory and ({_NUMBER}) seconds", _takes("model")),
        ("torch.compile took", rf"torch\.compile took ({_NUMBER}) s in total", _takes("compile")),
        ("JIT kernel warmup finished", rf"JIT kernel warmup finished in ({_NUMBER})s", _takes("kernels")),
        ("Graph capturing finished", rf"^Graph capturing finished in ({_NUMBER}) secs", _takes("graphs")),
        ("init engine (", rf"init engine \(.{{0,300}}?\) took ({_NUMBER}) s", _takes("engine")),
        # platforms/interface.py
        ("Unknown vLLM environment variable", r"Unknown vLLM environment variable detected: (\w+)", _does_not_know),
        # fallbacks to something that was not requested: kernels/linear/__init__.py, fused_moe/oracle, v1/sample and others
        ("alling back", r"(?i)\bfalling back\b", _falls_back),
        ("using automatic selection", r"", _falls_back),
        ("precluded higher-priority backend", r"", _falls_back),
    )
)
"""Each entry: words that the line must contain, which are fast to search; the pattern; the action.

Repetitions in patterns are bounded: an unbounded one takes quadratic time if a line contains its beginning again and again.
"""
_BY_WORD: Mapping[str, tuple[int, ...]] = {
    word: tuple(place for place, (words, _, _) in enumerate(_PATTERNS) if words == word) for word, _, _ in _PATTERNS
}
_BLACK = "█"
_WORDS = (*(words for words, _, _ in _PATTERNS), *_STAGES, _BLACK, "[shutdown]", "Error", "Exception", "error: ")
"""A line has at least one of these words if anything but its time is read from it."""
