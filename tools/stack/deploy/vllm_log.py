# SPDX-License-Identifier: Apache-2.0
"""What a vLLM server's log says: what runs, with what, since when, and what was refused and why.

The words are those of vLLM 0.32.0 (the file that writes a line is named beside its pattern); a later one that words it otherwise is
read as one that does not say. Logs come from terminals, files, containers and pipes: coloured, with progress bars, cut at any place.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from stack.deploy.recipes import Backends

PARTS = ("MoE", "MoE decode", "linear", "attention")
"""What a log names backends of."""
UNSAID = "not said"
"""What a log says nothing of."""
_LONGEST = 2**14
"""Characters of a line that are read; vLLM's own have some thousands."""
_FRONT = 400
"""Characters of a line in which its record begins: engines of containers put their own before it."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PROCESS = re.compile(r"\(([\w.-]+) pid=(\d+)\) ?")
# logger.py; DEBUG logs name a path in place of a file, old versions no process.
_RECORD = re.compile(
    r"(?:\((?P<process>[\w.-]+) pid=\d+\) )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<at>\d\d-\d\d \d\d:\d\d:\d\d) \[(?P<place>[^\]\s]{1,200})\] ?"
)
_CONTAINER = re.compile(r"[\w.-]+ +\| ?")
"""What `docker compose logs` puts before a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log: where it stands (from 1, as an editor counts), who says it, how grave, when, from what file, and what.

    What a line does not say is empty.
    """

    number: int
    process: str
    level: str
    at: str
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Named:
    """A name that the log gives to something, in what line; `of`: to what, in the log's words."""

    name: str
    of: str
    line: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A backend that was not taken for a part (of `PARTS`), and why, in the log's words; empty where it gives no reason."""

    part: str
    name: str
    why: str
    line: int


@dataclass(frozen=True, slots=True)
class Cache:
    """The KV cache: the type of its values, tokens in it, GiB, tokens of the longest request, and how many of these fit in."""

    kind: str | None = None
    tokens: int | None = None
    gib: float | None = None
    longest: int | None = None
    concurrency: float | None = None


@dataclass(frozen=True, slots=True)
class Graphs:
    """CUDA graphs: whether there are some, of what mode, why not (the log's words), seconds and GiB that capturing them took."""

    on: bool | None = None
    mode: str | None = None
    why: str | None = None
    seconds: float | None = None
    gib: float | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """Seconds that a phase of the start took, as the log counts them: all times of a process together, of several the slowest."""

    name: str
    seconds: float
    line: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What the log says of the server's last start; None and nothing where it does not say.

    `starts`: how many there are. `lines`: of the whole log. `dtype`: of activations. `compiled`: whether torch.compile was used.
    `weights`: GiB of the model on a device. `ready`: whether it serves; `stage`: what it was doing last. `unknown`: environment
    variables that this vLLM does not know. `fallbacks`: lines that say that something else is used than what was asked for.
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
        """The backends of a part (of `PARTS`) that were selected."""
        return {"MoE": self.moe, "MoE decode": self.decode, "linear": self.linear, "attention": self.attention}[part]

    def seconds(self, name: str) -> float | None:
        """How long a phase took."""
        return next((one.seconds for one in self.phases if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What of a server is not as a recipe expects it: the part, what was expected, what runs, and what the log says about why."""

    part: str
    expected: str
    found: str
    why: tuple[str, ...] = ()


def lines(text: str) -> Iterator[Line]:
    """The lines of a log, without colours and what containers put before them; of a progress bar each state is one."""
    for number, whole in enumerate(text.split("\n"), 1):
        for one in whole.split("\r"):
            if one.strip():
                yield line(one, number)


def line(text: str, number: int = 0) -> Line:
    """One line of a log."""
    plain = text[: 2 * _LONGEST]
    plain = (_ANSI.sub("", plain) if "\x1b" in plain else plain)[:_LONGEST].rstrip()
    record = _RECORD.search(plain, 0, _FRONT)
    if record is not None:
        process = record["process"] or ""
        return Line(number, process, record["level"], record["at"], record["place"], plain[record.end() :])
    if container := _CONTAINER.match(plain, 0, _FRONT):
        plain = plain[container.end() :]
    process = _PROCESS.match(plain)
    return Line(number, process[1] if process else "", "", "", "", plain[process.end() :] if process else plain)


_STAGES = MappingProxyType(
    {
        "Initializing a V1 LLM engine": "starting the engine",  # v1/engine/core.py
        "Building JIT module": "compiling kernels",  # flashinfer/jit/core.py; behind what a progress bar leaves on its line
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


def stage(said: Line) -> str | None:
    """What a server begins to do with that line; None where it goes on with what it does."""
    return next((name for words, name in _STAGES.items() if words in said.text), None)


def progress(said: Line) -> tuple[int, int] | None:
    """How far a progress bar is, and of how much; None where the line is none."""
    found = _BAR.search(said.text)
    return (int(found[1]), int(found[2])) if found is not None else None


def read(text: str) -> Reading:
    """What a log says. It takes time in proportion to its length, whatever is in it."""
    found = _Found()
    starts = number = 0
    for one in lines(text):
        number = one.number
        if _BANNER.search(one.text):
            starts, found = starts + 1, _Found()
        found.take(one)
    return found.reading(max(starts, 1 if number else 0), text.count("\n") + 1 if text else 0)


def mismatches(said: Reading, expected: Backends) -> tuple[Mismatch, ...]:
    """What of a server's log is not what a recipe expects; what a recipe does not name may be anything."""
    found = [_other(said, part, name) for part, name in wanted(expected).items()]
    if expected.kv is not None and said.cache.kind != expected.kv:
        found.append(Mismatch("KV cache", expected.kv, said.cache.kind or UNSAID))
    if expected.graphs is not None and said.graphs.on is not expected.graphs:
        words = {True: "on", False: "off", None: UNSAID}
        why = (said.graphs.why,) if said.graphs.why else ()
        found.append(Mismatch("graphs", words[expected.graphs], words[said.graphs.on], why))
    return tuple(one for one in found if one is not None)


def wanted(expected: Backends) -> Mapping[str, str]:
    """The backend that a recipe names for each part (of `PARTS`)."""
    named = (expected.moe, expected.decode, expected.linear, expected.attention)
    return {part: name for part, name in zip(PARTS, named, strict=True) if name is not None}


def _other(said: Reading, part: str, expected: str) -> Mismatch | None:
    """One kind of layer has one backend: another for the same kind is not what was expected, for another kind it is."""
    named = said.named(part)
    kinds = {one.of for one in named if one.name == expected}
    if kinds and all(one.name == expected or one.of not in kinds for one in named):
        return None
    why = [f"{one.name}: {one.why or 'no reason given'}" for one in said.refused if one.part == part and one.name == expected]
    why = why or [f"{one.name}: {one.why or 'no reason given'}" for one in said.refused if one.part == part]
    told = (*why, *(one.text for one in said.fallbacks if part.lower() in one.text.lower()))
    return Mismatch(part, expected, ", ".join(dict.fromkeys(one.name for one in named)) or UNSAID, tuple(dict.fromkeys(told)))


_BAR = re.compile(r"\| (\d{1,15})/(\d{1,15}) \[")  # tqdm
_BANNER = re.compile(r"█\s+version (\S+)")  # entrypoints/utils/api_utils.py
_ERROR = re.compile(r"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)(?:: |$)|(?:[\w. ]+: )?error: (?:argument|unrecognized) ")
"""The line of a traceback that names the error; or what argparse says."""
_SETTING = re.compile(
    r"\b(model|dtype|max_seq_len|quantization|kv_cache_dtype)=('[^']*'|[\w.]+)(?=,)|'(cudagraph_mode|mode)': <\w+\.(\w+): "
)
_REASON = re.compile(
    r"\s*(?:(?P<a>\w+) cannot implement due to: (?P<b>.+)|(?P<c>\w+) (?P<d>disabled by environment variable|requires capability .+)"
    r"|(?P<e>\w*Kernel): (?P<f>.+))$"
)


@dataclass(slots=True)
class _Found:
    """What has been found so far."""

    one: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    named: dict[str, dict[tuple[str, str], Named]] = field(default_factory=lambda: {part: {} for part in PARTS})
    refused: dict[tuple[str, str, str], Refused] = field(default_factory=dict)
    phases: dict[str, Phase] = field(default_factory=dict)
    spent: dict[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of a phase in a process so far: graphs are captured twice, once to see what room they take."""
    unknown: dict[str, Named] = field(default_factory=dict)
    fallbacks: dict[str, Line] = field(default_factory=dict)
    graphs: Graphs = Graphs()
    error: Line | None = None
    began: datetime | None = None
    last: datetime | None = None
    stage: str | None = None
    ending: bool = False
    listing: tuple[str, str] | None = None
    """Of what linear layers, and of what process, reasons are being listed."""

    def take(self, said: Line) -> None:
        """Take in a line."""
        if said.at:
            self._clock(said.at)
        if self.listing is not None and not self._listed(said):
            self.listing = None
        self.stage = stage(said) or self.stage
        self.ending = self.ending or ("[shutdown]" in said.text and "unexpectedly" not in said.text)
        if self.error is None and not self.ending and said.level in ("", "ERROR", "CRITICAL") and _ERROR.match(said.text):
            self.error = said  # what a server says of its engine while it is ended is none
        for words, pattern, taken in _TOLD:
            if words in said.text and (match := pattern.search(said.text)):
                taken(self, match, said)

    def _clock(self, at: str) -> None:
        try:
            now = datetime.strptime(f"2024-{at}", "%Y-%m-%d %H:%M:%S")  # the log names no year; this one has all days
        except ValueError:
            return
        self.began = self.began or now
        self.last = max(self.last or now, now) if now >= self.began - timedelta(days=1) else now + timedelta(days=366)

    def _listed(self, said: Line) -> bool:
        assert self.listing is not None
        reason = _REASON.match(said.text)
        if reason is None or said.process != self.listing[1]:
            return False
        name = reason["a"] or reason["c"] or reason["e"]
        self.refuse("linear", name, (reason["b"] or reason["d"] or reason["f"]).strip(), said)
        return True

    def name(self, part: str, name: str, of: str, said: Line) -> None:
        """A backend was selected."""
        self.named[part].setdefault((name, of), Named(name, of, said.number))

    def refuse(self, part: str, name: str, why: str, said: Line) -> None:
        """A backend was not taken."""
        self.refused.setdefault((part, name, why), Refused(part, name, why, said.number))

    def took(self, phase: str, seconds: float, said: Line) -> None:
        """A phase ended."""
        spent = self.spent[phase, said.process] = self.spent.get((phase, said.process), 0.0) + seconds
        if phase not in self.phases or self.phases[phase].seconds < spent:
            self.phases[phase] = Phase(phase, spent, said.number)

    def no_graphs(self, why: str, said: Line) -> None:
        """There are no graphs; the first reason is the reason."""
        if self.graphs.on is not False:
            self.graphs = Graphs(on=False, mode="NONE", why=why, line=said.number)

    def captured(self, seconds: str, gib: str, said: Line) -> None:
        """There are graphs."""
        if self.graphs.on is not False:
            self.graphs = Graphs(True, self.graphs.mode, None, float(seconds), float(gib), said.number)

    def graph_mode(self, mode: str, said: Line) -> None:
        """Graphs are to be of another mode than asked for."""
        if mode == "NONE":
            self.no_graphs(said.text, said)
        elif self.graphs.on is None:
            self.graphs = Graphs(mode=mode, why=said.text, line=said.number)

    def configured(self, said: Line) -> None:
        """The engine says its whole configuration; the first engine's counts."""
        for setting, value, other, name in _SETTING.findall(said.text):
            self.settings.setdefault(setting or other, name or value.strip("'"))
        mode = self.settings.get("cudagraph_mode")
        if mode == "NONE":
            self.no_graphs("cudagraph_mode is NONE", said)
        elif mode and self.graphs.mode is None and self.graphs.on is None:
            self.graphs = Graphs(mode=mode, line=said.number)

    def is_ready(self, said: Line) -> None:
        """It serves."""
        self.one["ready"] = "yes"
        if self.began is not None and self.last is not None:
            self.took("ready", (self.last - self.began).total_seconds(), said)

    def reading(self, starts: int, count: int) -> Reading:
        """All of it."""
        number: Callable[[str], float | None] = lambda name: float(self.one[name]) if name in self.one else None  # noqa: E731
        whole: Callable[[str], int | None] = lambda name: int(self.one[name].replace(",", "")) if name in self.one else None  # noqa: E731
        dtype = self.settings.get("dtype", "").removeprefix("torch.") or None
        return Reading(
            starts=starts,
            lines=count,
            version=self.one.get("version"),
            model=self.settings.get("model") or self.one.get("model"),
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
            address=self.one.get("address"),
            headless="headless" in self.one,
            ready="ready" in self.one,
            stage=self.stage,
        )

    def _kind(self, dtype: str | None) -> str | None:
        """`auto` is the type of the activations."""
        named = self.one.get("kv") or self.settings.get("kv_cache_dtype")
        return dtype if named == "auto" else named

    def _compiled(self) -> bool | None:
        if "compile" in self.phases:
            return True
        mode = self.settings.get("mode")
        return None if mode is None else mode != "NONE"


def _unless_none(value: str | None) -> str | None:
    return None if value == "None" else value


_Taken = Callable[[_Found, "re.Match[str]", Line], None]


def _keeps(*names: str) -> _Taken:
    """The groups of a pattern are values of these names; the first that is said counts."""

    def taken(found: _Found, match: "re.Match[str]", _said: Line) -> None:
        for name, value in zip(names, match.groups(), strict=True):
            found.one.setdefault(name, value)

    return taken


def _names(part: str, of: str = "") -> _Taken:
    """A pattern's first group is the backend of a part; its second, where it has one, of what."""

    def taken(found: _Found, match: "re.Match[str]", said: Line) -> None:
        found.name(part, match[1], (match[2] or "").strip() if match.re.groups > 1 else of, said)

    return taken


def _takes(phase: str) -> _Taken:
    """A pattern's last group is the seconds that a phase took."""
    return lambda found, match, said: found.took(phase, float(match[match.re.groups]), said)


def _refuses(part: str) -> _Taken:
    """A pattern's first group is a backend that was not taken, its second why."""
    return lambda found, match, said: found.refuse(part, match[1], _plain(match[2] or ""), said)


def _refuses_several(part: str, pattern: str) -> _Taken:
    """A pattern's first group lists backends that were not taken, and why."""
    each = re.compile(pattern)

    def taken(found: _Found, match: "re.Match[str]", said: Line) -> None:
        for name, why in each.findall(match[1]):
            found.refuse(part, name, _plain(why), said)

    return taken


def _plain(why: str) -> str:
    """A reason without the quotes and brackets of a list."""
    return why.strip().strip("[]").replace("'", "").strip().rstrip(".")


def _lists(found: _Found, match: "re.Match[str]", said: Line) -> None:
    found.listing = (match[1], said.process)


def _does_not_know(found: _Found, match: "re.Match[str]", said: Line) -> None:
    found.unknown.setdefault(match[1], Named(match[1], "environment variable", said.number))


def _falls_back(found: _Found, _match: "re.Match[str]", said: Line) -> None:
    found.fallbacks.setdefault(said.text, said)


_WHOLE, _NUMBER, _COUNT = r"\d{1,15}", r"\d{1,15}(?:\.\d{1,15})?", r"\d{1,15}|\d{1,3}(?:,\d{3}){1,4}"
"""As vLLM writes them: what else looks like one is none."""
_KV = r"(fp8\w*|int8\w*|nvfp4\w*|[\w]+)"
_TOLD: tuple[tuple[str, "re.Pattern[str]", _Taken], ...] = tuple(
    (words, re.compile(pattern), taken)
    for words, pattern, taken in (
        # entrypoints/utils/api_utils.py, v1/engine/core.py
        ("version ", _BANNER.pattern, _keeps("version")),
        ("model   ", r"█\s+model   (\S+)", _keeps("model")),
        ("Initializing a V1 LLM engine", r"engine \(v(\S+)\) with config: ", _keeps("version")),
        ("with config: model=", r"with config: ", lambda found, _, said: found.configured(said)),
        ("Using max model len", rf"Using max model len ({_COUNT})", _keeps("context")),  # config/model.py
        # entrypoints/cli/serve.py, entrypoints/launchers/api_server/entry.py, uvicorn
        ("headless", r"Launching (?:vLLM \(v\S+\)|\d+ data parallel engine\(s\)(?: in)?) (headless)", _keeps("headless")),
        ("Starting vLLM server on", r"Starting vLLM server on (\S+)", _keeps("address")),
        ("Application startup complete", r"", lambda found, _, said: found.is_ready(said)),
        # model_executor/layers/fused_moe/oracle/*.py
        (" MoE backend", r"Using '?(\w+)'? (\w+(?: Int8)?) MoE (?:LoRA )?backend\b", _names("MoE")),
        # model_executor/layers/fused_moe/experts/flashinfer_mxfp4_decode_moe.py, of the series mxfp4-moe
        (
            "for MXFP4 experts of",
            r"Using '(\w+)' for MXFP4 experts of (all batches|up to \d{1,5} tokens)",
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
        (
            "KV cache size:",
            rf"KV cache size: ({_COUNT}) tokens, Maximum concurrency for ({_COUNT}) tokens per request: ({_NUMBER})x",
            _keeps("tokens", "longest", "concurrency"),
        ),
        # config/vllm.py, config/compilation.py, v1/worker/gpu_model_runner.py
        ("Enforce eager set", r"", lambda found, _, said: found.no_graphs("enforce_eager is set", said)),
        ("Cudagraph is disabled under eager mode", r"", lambda found, _, said: found.no_graphs("enforce_eager is set", said)),
        ("Skipping CUDA graph capture", r"", lambda found, _, said: found.no_graphs(said.text, said)),
        (
            "setting cudagraph_mode=",
            r"setting cudagraph_mode=(\w+)",
            lambda found, match, said: found.graph_mode(match[1], said),
        ),
        (
            "udagraph mode ",
            r"Overriding to (?:CUDAGraphMode\.)?(\w+)\.",
            lambda found, match, said: found.graph_mode(match[1], said),
        ),
        (
            "Graph capturing finished",
            rf"^Graph capturing finished in ({_NUMBER}) secs, took (-?{_NUMBER}) GiB",
            lambda found, match, said: found.captured(match[1], match[2], said),
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
        # what is used in place of what was asked for: kernels/linear/__init__.py, fused_moe/oracle, v1/sample and others
        ("alling back", r"(?i)\bfalling back\b", _falls_back),
        ("using automatic selection", r"", _falls_back),
        ("precluded higher-priority backend", r"", _falls_back),
    )
)
"""Words that a line has to have, since looking for them is fast; the pattern; what is done with it.

Gaps in patterns are bounded: an unbounded one takes time by the square of a line in which its beginning stands again and again.
"""
