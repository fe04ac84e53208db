# SPDX-License-Identifier: Apache-2.0
"""List the jobs of a stack: proofs by series and lane, wheels and images by platform, suites by hardware."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.matrix.job import MOST, Job, Kind, Needs
from stack.model import lanes
from stack.model.series import Series
from stack.model.stack import Stack
from stack.validation import gates

FOLDER = ".stack/matrix"
"""Where jobs leave files, below the stack's folder."""
VERDICTS = ".stack/verdicts"
CPU = "cpu"
"""The hardware that every machine has."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The names that images have for platforms of wheels."""
_MADE_HERE = "localhost/"
"""The beginning of the name of an image that no registry has."""
# Memory: `kernels` and `serve` take 6 GB at most (docs/validate.md), a proof of ours with torch 2 GB (docs/matrix.md).
_PROOF = Needs(memory=4)
_WHEEL = Needs(memory=4)
_IMAGE = Needs(cpus=2, memory=8)
_SUITE = Needs(cpus=2, memory=8)


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that the user wants. Empty `only`, `lanes` and `series` choose all.

    `platforms` are those of wheels and images; empty: one job for all. `hardware` are labels of machines; empty: those of the gates.
    `python` is the interpreter, on machines with a GPU, for which the stack's wheels are installed. `group`: the least number of
    series that one job proves.
    """

    only: tuple[Kind, ...] = ()
    lanes: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    python: str = "python3"
    group: int = 1


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A kind of job that the stack has none of, and why."""

    kind: Kind
    why: str


@dataclass(frozen=True, slots=True)
class Listed:
    """The jobs. `grouped` is how many series one job of proofs has where each of its own would be too many jobs; else None."""

    jobs: tuple[Job, ...]
    left_out: tuple[LeftOut, ...] = ()
    grouped: int | None = None


def jobs(stacks: Mapping[str | None, Stack], choice: Choice, most: int = MOST) -> Listed:
    """List the jobs of a stack.

    Args:
        stacks: The stack as each lane sees it; None is the one in no lane.
        choice: Which jobs.
        most: The largest number of jobs. Proofs are grouped to meet it.

    Raises:
        StackError: A lane, series, platform or label is unknown or malformed, or there are too many jobs even in groups.

    """
    chosen = _lanes(stacks, choice)
    _check(choice, chosen)
    kinds = choice.only or tuple(Kind)
    proofs = {lane: _provable(stack, choice) for lane, stack in chosen.items()} if Kind.PROOFS in kinds else {}
    others = [job for kind in kinds if kind is not Kind.PROOFS for job in _of_kind(kind, chosen, choice)]
    size = _group_size([len(names) for names in proofs.values()], most - len(others), choice.group)
    made = (*(job for lane, names in proofs.items() for job in _proofs(lane, names, size)), *others)
    if len(made) > most:
        raise StackError(
            f"{len(made)} jobs are more than {most}, even with all series of a lane in one job of proofs",
            "choose some: --only KIND, --lane NAME, --platform NAME or --hardware LABEL",
        )
    if not made and choice.only:
        raise StackError(f"the stack has no such job: {_why(choice.only[0], chosen)}", "leave --only out to see what there is")
    there = {job.kind for job in made}
    left_out = tuple(LeftOut(kind, _why(kind, chosen)) for kind in kinds if kind not in there)
    return Listed(made, left_out, size if size > 1 else None)


def _lanes(stacks: Mapping[str | None, Stack], choice: Choice) -> dict[str | None, Stack]:
    for name in choice.lanes:
        if lanes.key(name) not in stacks:
            known = ", ".join(lanes.named(lane) for lane in stacks)
            raise StackError(f"there is no lane {name!r:.100}", f"pins.toml has these: {known}")
    wanted = {lanes.key(name) for name in choice.lanes} or {*stacks}
    return {lane: stack for lane, stack in stacks.items() if lane in wanted}


def _check(choice: Choice, chosen: Mapping[str | None, Stack]) -> None:
    for option, values in (("--platform", choice.platforms), ("--hardware", choice.hardware)):
        for value in values:
            if not _NAME.fullmatch(value):
                raise StackError(f"{option} {value!r:.100} is not a name", "use letters, digits and '_'")
    known = {series.name for stack in chosen.values() for series in stack.series}
    for name in choice.series:
        if name not in known:
            raise StackError(f"there is no series {name!r:.100}", f"stacks/stack.toml has these: {', '.join(sorted(known))}")
    if not re.fullmatch(r"[\w./~+-]+", choice.python) or choice.python.startswith("-"):
        raise StackError(f"--python {choice.python!r:.100} is not a path", "use letters, digits, '/', '.', '_', '+' and '-'")


def _provable(stack: Stack, choice: Choice) -> tuple[str, ...]:
    return tuple(
        series.name for series in stack.series if _has_proof(series) and (not choice.series or series.name in choice.series)
    )


def _has_proof(series: Series) -> bool:
    return bool(series.commands) or any(re.search(r"(^|/)test_[^/]*\.py$", path) for path in series.proves)


def _group_size(counts: Sequence[int], room: int, least: int) -> int:
    """Return the smallest number of series per job with which all proofs fit; that of the largest lane if nothing fits."""
    largest = max([1, *counts])
    return next(
        (size for size in range(min(least, largest), largest) if sum(-(-count // size) for count in counts) <= room), largest
    )


def _proofs(lane: str | None, names: Sequence[str], size: int) -> Iterator[Job]:
    for number, start in enumerate(range(0, len(names), size), 1):
        some = tuple(names[start : start + size])
        name = f"proofs-{some[0] if size == 1 else number}"
        yield Job(_in_lane(name, lane), Kind.PROOFS, ("prove", *some, *_option(lane)), _PROOF, lane, series=some)


def _of_kind(kind: Kind, chosen: Mapping[str | None, Stack], choice: Choice) -> Iterable[Job]:
    if kind is Kind.WHEELS:
        return [job for lane, stack in chosen.items() if _publishes(stack) for job in _wheels(lane, choice)]
    if kind is Kind.IMAGES:
        return [job for lane, stack in chosen.items() if _has_base(stack) for job in _images(lane, choice)]
    main = chosen.get(None)  # suites have no lanes
    return [] if main is None else [job for label in _labels(main, choice) for job in _suites(kind, label, main, choice)]


def _wheels(lane: str | None, choice: Choice) -> Iterator[Job]:
    for platform in choice.platforms or ("",):
        name = _in_lane(f"wheels-{platform}" if platform else "wheels", lane)
        out = f"{FOLDER}/{name}"
        chosen = ("--platform", platform) if platform else ()
        yield Job(name, Kind.WHEELS, ("build", "wheels", *chosen, *_option(lane), "--out", out), _WHEEL, lane, (out,))


def _images(lane: str | None, choice: Choice) -> Iterator[Job]:
    for platform in choice.platforms or ("",):
        name = _in_lane(f"image-{platform}" if platform else "image", lane)
        out = f"{FOLDER}/{name}"
        chosen = ("--platform", f"linux/{_ARCHITECTURES.get(platform, platform)}") if platform else ()
        arguments = ("image", "build", *chosen, *_option(lane), "--output", f"oci:{out}")
        yield Job(name, Kind.IMAGES, arguments, _IMAGE, lane, (out,))


def _suites(kind: Kind, label: str, stack: Stack, choice: Choice) -> Iterator[Job]:
    """Yield the suites of a kind of machine. A server on a GPU needs a model, so only the CPU's is started here."""
    if kind is Kind.KERNELS:
        out = f"{VERDICTS}/kernels-{label}.json"
        # What compiles needs no GPU: the CPU's job has that.
        gpu = () if label == CPU else ("--no-compile", "--python", choice.python)
        yield Job(f"kernels-{label}", kind, ("validate", "kernels", *gpu, "--out", out), _on(label), outputs=(out,))
    elif label == CPU and _serves(stack):
        out = f"{VERDICTS}/serve-{label}.json"
        yield Job(f"servers-{label}", kind, ("validate", "serve", "--no-prove", "--out", out), _on(label), outputs=(out,))


def _on(label: str) -> Needs:
    return _SUITE if label == CPU else Needs(_SUITE.cpus, _SUITE.memory, gpus=1, labels=(label,))


def _labels(stack: Stack, choice: Choice) -> tuple[str, ...]:
    """Return the hardware of the stack's gates, unless the user names it."""
    if choice.hardware:
        return choice.hardware
    file = stack.root / gates.FILE
    every = gates.load_all(file).values() if file.is_file() else ()
    return tuple(dict.fromkeys(_label(gate) for gate in every))


def _label(gate: gates.Gate) -> str:
    return next((each for each in sorted(gate.has) if re.fullmatch(r"sm\d+", each)), CPU)


def _serves(stack: Stack) -> bool:
    """Return whether a gate of the CPU wants cases of a server."""
    file = stack.root / gates.FILE
    every = gates.load_all(file).values() if file.is_file() else ()
    return any(_label(gate) == CPU and wanted.names.startswith("serve/") for gate in every for wanted in gate.wanted)


def _publishes(stack: Stack) -> bool:
    """Return whether an upstream with patches has a package."""
    patched = {ref.upstream for ref in stack.patches}
    return any(pin.archive is not None and pin.upstream in patched for pin in stack.pins)


def _has_base(stack: Stack) -> bool:
    base = stack.pins.base
    return base is not None and base.digest is not None and not base.image.startswith(_MADE_HERE) and _publishes(stack)


def _why(kind: Kind, chosen: Mapping[str | None, Stack]) -> str:
    """Say why a stack has no job of a kind."""
    if kind is Kind.PROOFS:
        return "no series names a proof"
    if kind is Kind.WHEELS:
        return "no upstream with patches names a package in pins.toml"
    if kind is Kind.IMAGES:
        bases = [stack.pins.base for stack in chosen.values() if stack.pins.base is not None]
        if any(base.image.startswith(_MADE_HERE) for base in bases):
            return "the base image was made on one machine: stack pins set base IMAGE:TAG names one in a registry"
        return "pins.toml names no base image with a digest, or no package"
    if kind is Kind.SERVERS:
        return "no gate of the CPU in validation/gates.toml wants cases of a server"
    return "validation/gates.toml has no gate, and no --hardware was given"


def _in_lane(name: str, lane: str | None) -> str:
    return name if lane is None else f"{name}@{lane}"


def _option(lane: str | None) -> tuple[str, ...]:
    return () if lane is None else ("--lane", lane)
