# SPDX-License-Identifier: Apache-2.0
"""Baselines: earlier speeds, published or recorded here; and whether a measurement is comparable with one."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import tomlkit

from stack.model import document
from stack.model.document import Table
from stack.model.verdict import Machine, Weights

FOLDER = Path("validation/baselines")
ANY = "any"
"""In place of a size that the source does not state: it is compared with every size."""

Sizes = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class MeasuredSubject:
    """The subject of a measurement: model, weights, machine, pins, tool. A field is None if it is not known."""

    model: str
    weights: Weights | None
    machine: Machine | None
    pins: Mapping[str, str] | None = None
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline in tokens per second: a value per run, or a single published number.

    Keys of `prefill` are tokens of the prompt; keys of `decode` are tokens of the answer, then of the prompt. Its hardware is its
    GPUs by name, or the CPU if there are none. A recorded baseline has `pins`; a published one has none, and is a goal. `released`: it is
    of an upstream release without changes.
    """

    name: str
    source: str
    date: str
    tool: str
    model: str
    weights: Weights
    gpus: tuple[str, ...]
    cpu: str | None = None
    cores: int | None = None
    pins: Mapping[str, str] | None = None
    prefill: Sizes = field(default_factory=lambda: MappingProxyType({}))
    decode: Mapping[str, Sizes] = field(default_factory=lambda: MappingProxyType({}))
    released: bool = False

    def prefills(self, prompt: int) -> tuple[float, ...]:
        """Return its speeds for prompts of that many tokens; empty if there are none."""
        return self.prefill.get(str(prompt)) or self.prefill.get(ANY) or ()

    def decodes(self, answer: int, prompt: int) -> tuple[float, ...]:
        """Return its speeds for answers of that many tokens to such prompts; empty if there are none."""
        sizes = self.decode.get(str(answer)) or self.decode.get(ANY) or {}
        return sizes.get(str(prompt)) or sizes.get(ANY) or ()

    def unlike(self, subject: MeasuredSubject) -> str:
        """Return why a measurement is not comparable with it; empty if it is."""
        if subject.machine is None:
            return "the server's machine is not known: run this on the machine of the server"
        if subject.weights is None:
            return "the weights that the server has loaded are not known: name them with --weights"
        if _plain(subject.model) != _plain(self.model) or (subject.weights is Weights.TINY) != (self.weights is Weights.TINY):
            return f"another model: {self.model}, {self.weights} weights"
        if other := self._other_hardware(subject.machine):
            return f"other hardware: {other}"
        if self.pins is not None and (dict(self.pins) != dict(subject.pins or {}) or self.tool != subject.tool):
            return f"stale: recorded on {self.date} with other pins or another {self.tool.split()[0]}: --record it anew"
        return ""

    def _other_hardware(self, machine: Machine) -> str:
        ours = tuple(gpu.name for gpu in machine.gpus)
        if sorted(ours) != sorted(self.gpus):
            return f"{_listed(self.gpus)}, here {_listed(ours)}"
        if not ours and (self.cpu, self.cores) != (machine.cpu, machine.cores):
            return f"{self.cores} cores of {self.cpu}, here {machine.cores} of {machine.cpu}"
        return ""


def load(folder: Path) -> tuple[Baseline, ...]:
    """Load all baselines of a folder, in the order of their names.

    Raises:
        StackError: a file is invalid; names file and key.

    """
    return tuple(_read(file) for file in sorted(folder.glob("*.toml")))


def file_name(subject: MeasuredSubject) -> str:
    """Name the baseline of a machine and model, for example `nvidia-gb10-gpt-oss-120b`."""
    assert subject.machine is not None
    on = "-".join(gpu.name for gpu in subject.machine.gpus) or f"{subject.machine.cpu}-{subject.machine.cores}-cores"
    return re.sub(r"[^a-z0-9]+", "-", f"{on} {_plain(subject.model)}".lower()).strip("-")


def text(
    subject: MeasuredSubject,
    stack: str,
    prefill: Mapping[int, tuple[float, ...]],
    decode: Mapping[tuple[int, int], tuple[float, ...]],
) -> str:
    """Write the TOML of a recorded baseline; `decode` is keyed by tokens of the answer and of the prompt."""
    assert subject.machine is not None
    assert subject.weights is not None
    toml = tomlkit.document()
    toml.add(tomlkit.comment("SPDX-License-Identifier: Apache-2.0"))
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    head = {"source": f"recorded with the stack {stack[:12]}", "date": date, "tool": subject.tool}
    subject_ = {"model": _plain(subject.model), "weights": subject.weights.value, "gpus": _counted(subject.machine)}
    for key, value in (head | subject_).items():
        toml[key] = value
    if not subject.machine.gpus:
        toml["cpu"], toml["cores"] = subject.machine.cpu, subject.machine.cores
    toml["pins"] = dict(subject.pins or {})
    toml["prefill"] = {str(prompt): [round(value, 3) for value in runs] for prompt, runs in sorted(prefill.items())}
    decodes: dict[str, dict[str, list[float]]] = {}
    for (answer, prompt), runs in sorted(decode.items()):
        decodes.setdefault(str(answer), {})[str(prompt)] = [round(value, 3) for value in runs]
    toml["decode"] = decodes
    return tomlkit.dumps(toml)


def _read(file: Path) -> Baseline:
    top = document.load(file)
    decode = top.optional_table("decode")
    prefill = top.optional_table("prefill")
    read = Baseline(
        name=file.stem,
        source=top.text("source"),
        date=top.text(
            "date", pattern=r"\d{4}-\d\d(-\d\d)?(/\d{4}-\d\d(-\d\d)?)?", meaning="a date, or two with / between them"
        ),
        tool=top.text("tool"),
        model=top.text("model"),
        weights=Weights(top.text("weights", pattern="|".join(Weights), meaning=" or ".join(Weights))),
        gpus=_gpus(top),
        cpu=top.optional_text("cpu"),
        cores=top.whole("cores") if top.given("cores") else None,
        pins=_pins(top.optional_table("pins")),
        prefill=_sizes(prefill) if prefill is not None else MappingProxyType({}),
        decode=MappingProxyType(
            {key: _sizes(decode.table(_size(decode, key))) for key in decode} if decode is not None else {}
        ),
        released=top.flag("released") if top.given("released") else False,
    )
    top.finish()
    if not read.prefill and not read.decode:
        raise top.error("prefill", "and decode are missing", "a baseline needs one of them")
    if not read.gpus and read.cpu is None:
        raise top.error("gpus", "is empty, and cpu is missing", "name the hardware that was measured")
    return read


def _gpus(top: Table) -> tuple[str, ...]:
    """Read GPUs, each as `{ name = "NVIDIA GB10", count = 4 }`; return a name per GPU."""
    names: list[str] = []
    for gpu in top.tables("gpus"):
        name, count = gpu.text("name"), gpu.whole("count")
        gpu.finish()
        names += [name] * count
    return tuple(names)


def _counted(machine: Machine) -> list[dict[str, str | int]]:
    names = [gpu.name for gpu in machine.gpus]
    return [{"name": name, "count": names.count(name)} for name in dict.fromkeys(names)]


def _pins(table: Table | None) -> Mapping[str, str] | None:
    return MappingProxyType({name: table.text(name) for name in table}) if table is not None else None


def _sizes(table: Table) -> Sizes:
    return MappingProxyType({_size(table, key): _runs(table, key) for key in table})


def _size(table: Table, key: str) -> str:
    if key != ANY and not re.fullmatch(r"[1-9]\d*", key):
        raise table.error(key, "is not a size", f"write a number of tokens, or {ANY}")
    return key


def _runs(table: Table, key: str) -> tuple[float, ...]:
    runs = table.numbers(key)
    if not runs or min(runs) <= 0:
        raise table.error(key, f"is {list(runs)}", "write tokens per second: one number, or a list with one per run")
    return runs


def _plain(model: str) -> str:
    """Return a model's name without its owner or folder."""
    return model.rstrip("/").rpartition("/")[2].lower()


def _listed(gpus: tuple[str, ...]) -> str:
    counts = {name: gpus.count(name) for name in gpus}
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no GPU"
