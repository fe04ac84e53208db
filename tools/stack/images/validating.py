# SPDX-License-Identifier: Apache-2.0
"""Validate an image: run the suites of `stack validate` in a container of exactly the image to be published."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry.upstream_stores import Stores
from stack.deploy import recipes
from stack.images import container_env, image, labels
from stack.images.container_env import ImageContainer
from stack.images.engine import Engine
from stack.images.image import Platform
from stack.images.reference import Reference
from stack.model.stack import Stack
from stack.model.verdict import Case, Verdict, Weights
from stack.validation import gates, standing
from stack.validation import suite as suites
from stack.validation.bench import start
from stack.validation.gates import Gate
from stack.validation.kernels import Kernels
from stack.validation.serve import fixture_cache, server
from stack.validation.serve import suite as serve
from stack.validation.suite import Job, Suite, ValidatedSubject

KERNELS, SERVE, BENCH = "kernels", "serve", "bench"
SUITES = (KERNELS, SERVE, BENCH)
GIVEN = "gpt-oss"
"""The recipe for a server with a user's own checkpoint."""
_LONGEST = 7200.0
"""Maximal seconds for a server's first start with a large checkpoint, which compiles kernels for up to an hour."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A user's own gpt-oss checkpoint: its folder, its kind of weights, and further arguments of `vllm serve`."""

    folder: Path
    weights: Weights
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValidationOrder:
    """The options of a validation.

    `out` is the folder for the verdicts, a file for each suite. `recipes` are served with tiny models unless a `checkpoint` is
    given. `devices` of this machine are passed to the container. `only`, `resume` and `stale` work as in `stack validate`.
    """

    engine: Engine
    layout: Reference
    suites: tuple[str, ...]
    out: Path
    recipes: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    devices: tuple[str, ...] = ()
    compiling: bool = True
    prove: bool = True
    only: tuple[str, ...] = ()
    resume: bool = False
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a suite: its verdict and the verdict's file. The verdict is None if no case had to run.

    `standing`: the cases that did not run again.
    """

    suite: str
    file: Path
    verdict: Verdict | None
    standing: frozenset[str] = frozenset()


def needed(gate: Gate) -> tuple[str, ...]:
    """Return the suites with cases that a gate requires."""
    named = {wanted.names.partition("/")[0] for wanted in gate.wanted}
    return tuple(suite for suite in SUITES if suite in named)


def of(layout: Reference, stack: Stack) -> Platform:
    """Return the image of a layout, after checking that it has one platform and is of this stack.

    Raises:
        StackError: it does not exist, has several platforms, or is of another stack.

    """
    indexed = image.read(layout)
    if len(indexed.platforms) != 1:
        raise StackError(
            f"{layout.shown} has {counted(len(indexed.platforms), 'platform')}", "validate each on its own machine"
        )
    (platform,) = indexed.platforms
    if problems := labels.differing(platform.labels, stack):
        raise StackError(
            f"{layout.shown} is not of this stack: {problems[0]}",
            "build it again, or check out the stack that it was built from",
        )
    return platform


def validate(order: ValidationOrder, stores: Stores) -> Iterator[Done]:
    """Run the suites in the image, one after the other, and yield each when it is finished.

    Raises:
        StackError: the image or the earlier verdict is of another stack, or a suite's input cannot be obtained.

    """
    for name in order.recipes:
        recipes.servable(name, "name its folder with --model")
    platform = of(order.layout, stores.stack)
    judged_by = gates.digests(stores.stack.root / gates.FILE)
    outs = {name: _out(order, name) for name in order.suites}
    before = standing.of_image(order.out, platform.digest, judged_by) if order.stale else []
    if order.resume:
        for out in outs.values():
            suites.look_at_earlier(stores.stack, out, platform.digest, judged_by)
    place = stores.place.cache
    with ExitStack() as held:
        container = held.enter_context(
            container_env.entered(order.engine, order.layout, platform, place, order.devices, stores.tell)
        )
        made = _Made(order, stores, container, held)
        for name, out in outs.items():
            suite, about = made.suite(name)
            subject = replace(about, image=platform.digest, gates=judged_by)
            kept = standing.names(stores.stack, [each for each in before if each.file != out], name, subject)
            asked = suites.RunOptions(out, order.only, order.resume, stores.place.progress, kept)
            try:
                yield Done(name, out, suites.run(stores.stack, suite, subject, asked), kept)
            except suites.NothingToRun:
                yield Done(name, out, None, kept)


def _out(order: ValidationOrder, suite: str) -> Path:
    """The file of a suite's verdict; of a stale one, beside those whose cases stand."""
    target = order.out / f"{suite}.json"
    if not order.stale:
        return target
    return standing.newest(target) if order.resume else standing.free(target)


class _Made:
    """The suites of an order; a server with a checkpoint is started once for all suites that use it."""

    def __init__(self, order: ValidationOrder, stores: Stores, container: ImageContainer, held: ExitStack) -> None:
        self._order, self._stores, self._inside, self._held = order, stores, container, held
        self._url = ""

    def suite(self, name: str) -> tuple[Suite, ValidatedSubject]:
        """Return a suite and the description of its subject."""
        return {KERNELS: self._kernels, SERVE: self._serve, BENCH: self._bench}[name]()

    def _kernels(self) -> tuple[Suite, ValidatedSubject]:
        place = self._stores.place
        suite = Kernels(self._stores.stack, place.cache, place.source, inside=self._inside, compiling=self._order.compiling)
        return suite, suite.prepare(place.progress)

    def _serve(self) -> tuple[Suite, ValidatedSubject]:
        given = self._order.checkpoint
        url = self._serving() if given is not None else None
        chosen = (GIVEN,) if given is not None else self._order.recipes or recipes.ours()
        plan = serve.ServeOptions(tuple(map(recipes.load, chosen)), url, self._inside, prove=self._order.prove)
        loaded = given.weights if given is not None else Weights.TINY
        versions = serve.versions(self._stores.stack, replace(plan, url=None))

        def cases(job: Job) -> Iterator[Case]:
            return serve.cases(job, self._stores, _no_wheel, plan)

        return cases, ValidatedSubject(" ".join(chosen), loaded, versions)

    def _bench(self) -> tuple[Suite, ValidatedSubject]:
        given = self._order.checkpoint
        weights = given.weights if given is not None else Weights.TINY
        asked = start.BenchOptions(self._serving(), weights=weights, recipe=GIVEN if given is not None else self._tiny())
        begun = start.begin(self._stores.stack, self._stores.place.cache, asked, self._stores.place.progress)
        return begun.suite, begun.subject

    def _tiny(self) -> str:
        return (self._order.recipes or recipes.ours())[0]

    def _serving(self) -> str:
        """Return the address of a server in the image, with the checkpoint or with the first recipe's tiny model."""
        if not self._url:
            work = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="stack-serve-")))
            try:
                running = self._held.enter_context(self._started(work))
            except server.NotServing as failed:
                raise StackError(
                    f"the server in the image did not start ({failed.cause})", "run the image to see its output"
                ) from failed
            self._url = running.url
        return self._url

    def _started(self, work: Path) -> AbstractContextManager[server.Running]:
        given = self._order.checkpoint
        if given is not None:
            folder, arguments, variables = given.folder, given.arguments, dict[str, str]()
        else:
            recipe = recipes.load(self._tiny())
            folder = fixture_cache.prepare(self._stores.place.cache, self._stores.tell).model(recipe.model)
            arguments, variables = recipe.arguments, dict(recipe.environment)
        return server.serving(self._inside, folder, arguments, variables, work, _LONGEST, self._stores.tell)


def _no_wheel(_: Stack) -> Path:
    raise AssertionError("an image has its packages")
