# SPDX-License-Identifier: Apache-2.0
"""Check a running server: ask the doctor's questions, run the serve suite's cases, measure it, and make a verdict of all of it."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import stack
from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.deploy import hardware
from stack.deploy.data import DATA
from stack.deploy.hardware import Profile
from stack.deploy.recipes import Recipe
from stack.doctor import running
from stack.doctor.server.interview import Asked
from stack.model.verdict import Case, Machine, Outcome, Verdict, Weights
from stack.owner.checking import clock_watch, harmony_tokens, question_cases, serve_cases, short_bench, speeds
from stack.owner.checking.serve_cases import ServedModel
from stack.owner.checking.served_stack import ServedStack
from stack.owner.checking.speeds import Speed
from stack.owner.readiness import gpu, machine_checks
from stack.owner.readiness.remark import Remark, Severity
from stack.validation import endpoint, machine
from stack.validation.bench import baseline, benchy
from stack.validation.endpoint import Endpoint, Model

_SPEED_AT = 128
"""Tokens before the answer whose speed the doctor measures."""
_QUESTIONS = 180.0
"""Seconds for all answers to the doctor's questions."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A request to check a server.

    `url`: the server; `model`: its model, by default the only one; `recipe`: the one that should run, None if nobody says; `weights`:
    what it has loaded. `minutes`: the time for measuring; 0 measures nothing. `key`: the API key. `tokenizer`: the model's tokenizer.json,
    by default in the Hugging Face cache. `cache`: where environments are kept.
    """

    url: str
    cache: Path
    model: str | None = None
    recipe: Recipe | None = None
    weights: Weights = Weights.REAL
    minutes: float = 2.0
    key: str | None = field(default=None, repr=False)
    tokenizer: Path | None = None
    context: int = 65_536


@dataclass(frozen=True, slots=True)
class CheckedServer:
    """The results of a check: questions, all cases, speeds, and remarks about the GPU under load.

    `model`: its name; `version`: of the server, None if it does not say; `here`: it runs on this machine. `unmeasured`: why no speed was
    measured. `machine`: this machine.
    """

    model: str
    version: str | None
    here: bool
    machine: Machine
    asked: tuple[Asked, ...]
    cases: tuple[Case, ...]
    speeds: tuple[Speed, ...]
    remarks: tuple[Remark, ...]
    tool: str = ""
    unmeasured: str = ""

    @property
    def answers(self) -> tuple[Case, ...]:
        """The cases that judge answers, not speeds."""
        return tuple(case for case in self.cases if case.suite != "bench")

    @property
    def wrong(self) -> tuple[Case, ...]:
        """The cases whose answer was wrong."""
        return tuple(case for case in self.answers if case.outcome is Outcome.FAILED)

    @property
    def failed(self) -> bool:
        """Whether a person is needed: an answer is wrong, a measurement failed, or the GPU must be mended."""
        return any(case.outcome is Outcome.FAILED for case in self.cases) or any(
            remark.severity is Severity.WRONG for remark in self.remarks
        )


@dataclass(frozen=True, slots=True)
class _Subject:
    """The server as it describes itself, and what is known of its machine. `profile`: of its hardware, if a recipe names it."""

    server: Endpoint
    model: Model
    version: str | None
    machine: Machine
    profile: Profile | None
    needs: tuple[str, ...]

    @property
    def url(self) -> str:
        """The address without /v1."""
        return self.server.url.removesuffix("/v1")


def check(request: CheckRequest, served: ServedStack | None, tell: Progress) -> CheckedServer:
    """Check a server.

    Args:
        request: what to check.
        served: the stack that the server is of; None if nobody says.
        tell: gets each step.

    Raises:
        StackError: the server does not answer, or has no such model.

    """
    subject = _subject(request)
    asked = tuple(_questions(request, subject, tell))
    cases = [*question_cases.of(asked, subject.needs), *_serve(request, subject, served, tell)]
    measured, found, remarks, tool, unmeasured = _measured(request, subject, tell)
    return CheckedServer(
        model=subject.model.name,
        version=subject.version,
        here=subject.server.here,
        machine=subject.machine,
        asked=asked,
        cases=(*cases, *measured),
        speeds=found,
        remarks=remarks,
        tool=tool,
        unmeasured=unmeasured,
    )


def verdict(request: CheckRequest, checked: CheckedServer, served: ServedStack) -> Verdict:
    """Make the verdict of a check, with everything that its reader must know of the machine and the server."""
    versions: Mapping[str, str] = {
        "stack": stack.__version__,
        "python": platform.python_version(),
        "validation": machine.code(),
        "model": checked.model,
        "server": checked.version or "unknown",
        **({"bench": checked.tool} if checked.tool else {}),
    }
    return Verdict(
        stack=served.digest,
        pins=served.pins,
        made=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        machine=checked.machine,
        versions=MappingProxyType(dict(versions)),
        cases=checked.cases,
        recipe=request.recipe.name if request.recipe is not None else None,
        weights=request.weights,
        image=served.image,
    )


def _subject(request: CheckRequest) -> _Subject:
    server = endpoint.at(request.url, request.key)
    model = server.model(request.model)
    here = machine.here()
    on = request.recipe.hardware if request.recipe is not None else None
    profile = hardware.load(on.name) if on is not None else None
    gpus = tuple(each.name for each in here.gpus)
    fits = profile is not None and server.here and profile.gpu in gpus
    needs = ("elsewhere",) if not server.here else (f"sm{here.gpus[0].capability.replace('.', '')}",) if gpus else ("cpu",)
    return _Subject(server, model, server.version(), here, profile if fits else None, needs)


def _questions(request: CheckRequest, subject: _Subject, tell: Progress) -> Sequence[Asked]:
    limit = speeds.limits(request.recipe, subject.profile, (_SPEED_AT,)).get(_SPEED_AT)
    # A recipe's speeds are those of its hardware.
    expected = request.recipe if subject.profile is not None else None
    return [
        *running.interview(
            subject.url,
            subject.model.name,
            expected,
            limit,
            key=request.key,
            longest=_QUESTIONS,
            context=request.context,
            tell=tell,
        )
    ]


def _serve(request: CheckRequest, subject: _Subject, served: ServedStack | None, tell: Progress) -> Sequence[Case]:
    model = ServedModel(subject.url, subject.model.name, request.key, served.digest if served is not None else None)
    try:
        encode = harmony_tokens.encoder(request.cache, tell)
        return [*serve_cases.run(model, encode, subject.needs, tell)]
    except StackError as failed:
        return [*serve_cases.not_run(str(failed), subject.needs)]


def _measured(
    request: CheckRequest, subject: _Subject, tell: Progress
) -> tuple[tuple[Case, ...], tuple[Speed, ...], tuple[Remark, ...], str, str]:
    """Return the cases of the bench, the speeds, remarks about the GPU under load, the tool, and why nothing was measured."""
    if not request.minutes:
        return (), (), (), "", "it was left out"
    try:
        tokenizer = endpoint.tokenizer(subject.model, request.tokenizer)
        python = benchy.python(request.cache, tell)
        tool = f"llama-benchy {benchy.version(python)}"
    except StackError as failed:
        return (), (), (), "", str(failed)
    share = 0.0 if request.weights is Weights.TINY else benchy.SHARE
    target = benchy.Target(subject.server.url, subject.model.name, tokenizer, share, request.key)
    bench = short_bench.ShortBench(python, target, subject.model.length, subject.needs, request.minutes * 60)
    with clock_watch.watching() as watch:
        cases = tuple(short_bench.run(bench, tell))
    of = baseline.MeasuredSubject(
        subject.model.name, request.weights, subject.machine if subject.server.here else None, tool=tool
    )
    limits = speeds.limits(request.recipe, subject.profile, [size.prompt for size in bench.sizes])
    found = tuple(speeds.of(cases, of, baseline.load(DATA / "baselines"), limits))
    return cases, found, tuple(_under_load(watch)) if subject.server.here else (), tool, ""


def _under_load(watch: clock_watch.ClockWatch) -> Sequence[Remark]:
    """Judge the GPU's clock while it was measured; only what is wrong or worth knowing."""
    now, of = watch.under_load(), gpu.read().first
    if now is None or of is None:
        return ()
    return [remark for remark in machine_checks.held_back(of, now) if remark.severity is not Severity.FINE]
