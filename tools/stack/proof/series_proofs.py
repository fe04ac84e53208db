# SPDX-License-Identifier: Apache-2.0
"""Proving whole series: with each patch its tests pass, without it one fails, and on another release they may pass by themselves.

What passes on a release without the patch has landed by behaviour, however upstream spelled it. What upstream has merged is
still looked after: its tests pass at the pins, and fail on an earlier release.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import ladder
from stack.carry.outcome import Landed
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId
from stack.model.series import PatchRef, Series
from stack.proof import environment, proof_module
from stack.proof.proof_module import Merged, Proof
from stack.proof.pytest_run import Run
from stack.proof.runner import Runner
from stack.store.sources import SourceTree

Tell = Callable[[str], None]


class State(StrEnum):
    """How the tests of a patch ended."""

    PASSES = "passes"
    FAILS = "fails"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Result:
    """How the tests of a patch ended on one tree, and why where they did not run; `output` is what pytest printed.

    `cached`: the result is an earlier run's with the same inputs.
    """

    state: State
    reason: str = ""
    output: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """One patch, proved. `landed` is the first release that was found to pass without it."""

    ref: PatchRef
    proof: str
    tests: tuple[str, ...]
    with_patch: Result
    without: Result
    onto: Result | None = None
    landed: str | None = None

    @property
    def sound(self) -> bool:
        """Whether the proof proves something: it passes with the patch, and can fail."""
        return self.with_patch.state is State.PASSES and self.without.state is State.FAILS


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that upstream has, as `prove.Merged` names it: its tests at the pins, on a release before, and on another."""

    series: str
    address: str
    proof: str
    tests: tuple[str, ...]
    here: Result
    release: str
    before: Result
    onto: Result | None = None

    @property
    def sound(self) -> bool:
        """Whether it is there, and would be missed."""
        there = self.onto is None or self.onto.state is not State.FAILS
        return self.here.state is State.PASSES and self.before.state is State.FAILS and there


@dataclass(frozen=True, slots=True)
class Asked:
    """What to prove: series (all that have proofs, unless named), and the releases to try them on without the patches.

    `onto`: for each upstream the releases on its way, the last of which is where it goes; where the proofs pass there, the first
    that passes is found by bisection. `python`: an interpreter in place of the environments in the cache.
    """

    series: tuple[str, ...] = ()
    onto: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    python: Path | None = None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a patch's tests say of a release without it: the first release that needs it no more, or why none is known to."""

    ref: PatchRef
    tests: tuple[str, ...]
    landed: str | None
    reason: str = ""


def provable(stores: Stores) -> tuple[str, ...]:
    """The series that name a test module."""
    return tuple(one.name for one in stores.stack.series if _modules(one))


def _modules(one: Series) -> list[str]:
    return [path for path in one.proves if Path(path).name.startswith("test_") and path.endswith(".py")]


def proofs(stores: Stores, names: Sequence[str]) -> tuple[Proof, ...]:
    """The proof modules of some series, or of all.

    Raises:
        StackError: no such series, a series that names no proof, or a proof that cannot be read.

    """
    stack = stores.stack
    chosen = [stack.get(name) for name in names] or list(stack.series)
    found: dict[Path, Proof] = {}
    for one in chosen:
        files = [stack.root / path for path in _modules(one)]
        if names and not files:
            raise StackError(f"series {one.name} names no test module in proves", "a proof is a pytest module, test_*.py")
        found |= {file: proof_module.load(file, stack) for file in files}
    if not found:
        raise StackError("no series names a test module in proves", "a proof is a pytest module, test_*.py")
    return tuple(found.values())


def ways(stores: Stores, onto: Sequence[str], *, through: bool) -> dict[str, tuple[str, ...]]:
    """The releases on each upstream's way, from `TAG` (of the first upstream) or `UPSTREAM=TAG`; `through`: all that are between.

    Raises:
        StackError: no such upstream, one that is named twice, or its releases cannot be listed.

    """
    found: dict[str, tuple[str, ...]] = {}
    for one in onto:
        name, _, tag = one.rpartition("=")
        pin = stores.stack.pins.get(name or holder(stores))
        if pin.upstream in found:
            raise StackError(
                f"--onto names {pin.upstream} twice: {found[pin.upstream][-1]} and {tag}", "name one release of it"
            )
        between = ladder.between(stores.tags(pin.upstream), pin.tag or "", tag) if through else []
        found[pin.upstream] = (*between, tag)
    return found


def verdicts(runner: Runner, asked: Asked, tell: Tell = lambda _: None) -> Iterator[Verdict]:
    """Prove every patch, one after the other.

    Raises:
        StackError: a proof or a source cannot be had, or the environment cannot be made.

    """
    for proof in proofs(runner.stores, asked.series):
        trial = _Trial(runner, proof, asked, tell)
        for ref in proof.refs():
            tests = proof.proves[ref.file]
            here = result(trial.whole(), tests)
            without = trial.without(ref)
            onto, landed = trial.elsewhere(ref)
            yield Verdict(ref, _place(runner.stores, proof), tests, here, without, onto, landed)


def kept(runner: Runner, asked: Asked, tell: Tell = lambda _: None) -> Iterator[Kept]:
    """See after everything that upstream has merged, one after the other.

    Raises:
        StackError: as `verdicts`.

    """
    for proof in proofs(runner.stores, asked.series):
        trial = _Trial(runner, proof, asked, tell)
        for one in proof.merged:
            here = result(trial.whole(), one.tests)
            before, onto = trial.before(one), trial.there(one.tests)
            yield Kept(proof.series, one.address, _place(runner.stores, proof), one.tests, here, one.fails_on, before, onto)


def behaviour(runner: Runner, asked: Asked, tell: Tell = lambda _: None) -> Iterator[Behaviour]:
    """Which patches the releases of `asked.onto` do without; only proofs that can fail say so, and all of a patch have to.

    Raises:
        StackError: a proof or a source cannot be had, or the environment cannot be made.

    """
    found: dict[PatchRef, list[Behaviour]] = {}
    for proof in proofs(runner.stores, asked.series):
        trial = _Trial(runner, proof, asked, tell)
        for ref in proof.refs():
            one = _behaviour(trial, ref, proof.proves[ref.file])
            if one is not None:
                found.setdefault(ref, []).append(one)
    for ref, said in found.items():
        way = asked.onto[ref.upstream]
        tests = tuple(test for one in said for test in one.tests)
        needed = next((one for one in said if one.landed is None), None)
        last = max((one.landed for one in said if one.landed is not None), key=way.index, default=None)
        yield Behaviour(ref, tests, last) if needed is None else needed


def landings(found: Iterable[Behaviour], commits: Mapping[str, Mapping[str, CommitId]]) -> dict[str, Landed]:
    """What has landed by behaviour, by the patch's path below `stacks/`; `commits` are those of each upstream's releases."""
    return {
        one.ref.path: Landed(
            commits[one.ref.upstream][one.landed],
            f"{', '.join(one.tests)} pass{'es' if len(one.tests) == 1 else ''} without it",
            1.0,
            one.landed,
            behaviour=True,
        )
        for one in found
        if one.landed is not None
    }


def _behaviour(trial: "_Trial", ref: PatchRef, tests: tuple[str, ...]) -> Behaviour | None:
    """What one proof says of a patch; None where its upstream goes nowhere."""
    onto, landed = trial.elsewhere(ref)
    if onto is None:
        return None
    if landed is None:
        return Behaviour(ref, tests, None, f"{onto.state.value}: {onto.reason}")
    if result(trial.whole(), tests).state is not State.PASSES or trial.without(ref).state is not State.FAILS:
        return Behaviour(ref, tests, None, "the proof does not hold at the pins: see `stack prove`")
    return Behaviour(ref, tests, landed)


def idle(runner: Runner, asked: Asked, tell: Tell = lambda _: None) -> Iterator[PatchRef]:
    """The patches without which all proofs of their series still pass.

    Raises:
        StackError: as `verdicts`.

    """
    for proof in proofs(runner.stores, asked.series):
        python = asked.python or interpreter(runner.stores, proof, tell)
        for ref in proof.refs():
            tell(f"{proof.path.name} without {ref.path}")
            try:
                tree = proof_module.tree(runner.stores, proof.upstream, without=ref)
            except StackError:
                continue  # a later patch stands on it: it does something
            if runner.run(proof, python, tree).good:
                yield ref


class _Trial:
    """One proof module, and its runs on the trees that it was tried on."""

    def __init__(self, runner: Runner, proof: Proof, asked: Asked, tell: Tell) -> None:
        self._runner = runner
        self._stores = runner.stores
        self._proof = proof
        self._asked = asked
        self._tell = tell
        self._releases: dict[str, Run | Result] = {}

    @functools.cached_property
    def _own_python(self) -> Path:
        return self._python(self._stores.obtain(holder(self._stores)))

    @functools.cache  # noqa: B019  (a trial is short-lived)
    def whole(self) -> Run:
        """All its tests on the tree with all patches."""
        self._tell(f"{self._proof.path.name} with all patches")
        return self._runner.run(self._proof, self._own_python, proof_module.tree(self._stores, self._proof.upstream))

    def without(self, ref: PatchRef) -> Result:
        """The tests of a patch on the tree without it; where later patches stand on it, without those, too."""
        self._tell(f"{self._proof.path.name} without {ref.path}")
        tree = proof_module.tree_without(self._stores, ref)
        tests = self._proof.proves[ref.file]
        return result(self._runner.run(self._proof, self._own_python, tree, tests), tests)

    @functools.cache  # noqa: B019  (a trial is short-lived)
    def _earlier(self, release: str) -> Run:
        # In the environment of the pins: one of its own takes gigabytes.
        self._tell(f"{self._proof.path.name} on {self._proof.upstream} {release}")
        tree = self._stores.obtain(self._proof.upstream, release).tree
        return self._runner.run(self._proof, self._own_python, tree)

    def before(self, merged: Merged) -> Result:
        """The tests of a merge on the release before it; that nothing at all passes there may be a broken import."""
        run = self._earlier(merged.fails_on)
        return result(run, merged.tests) if run.passed else Result(State.NOT_RUN, "nothing passes there", run.output)

    def there(self, tests: Sequence[str]) -> Result | None:
        """Some tests where the upstream goes."""
        way = self._asked.onto.get(self._proof.upstream, ())
        return self._tried(tests, way[-1]) if way else None

    def elsewhere(self, ref: PatchRef) -> tuple[Result | None, str | None]:
        """The tests of a patch where its upstream goes, without it; and, if they pass there, since which release they do."""
        way, tests = self._asked.onto.get(self._proof.upstream, ()), self._proof.proves[ref.file]
        if not way:
            return None, None
        found = self._tried(tests, way[-1])
        if found.state is not State.PASSES:
            return found, None
        return found, _first(way, lambda tag: self._tried(tests, tag))

    def _tried(self, tests: Sequence[str], tag: str) -> Result:
        if tag not in self._releases:
            self._tell(f"{self._proof.path.name} on {self._proof.upstream} {tag}")
            self._releases[tag] = self._run(tag)
        run = self._releases[tag]
        return run if isinstance(run, Result) else result(run, tests)

    def _run(self, tag: str) -> Run | Result:
        """The tests that prove something, all of the module's, on a release as it is."""
        tree = self._stores.obtain(self._proof.upstream, tag)
        named = holder(self._stores)
        try:
            python = self._python(tree if self._proof.upstream == named else self._stores.obtain(named))
        except StackError as failed:
            return Result(State.NOT_RUN, failed.problem)
        proving = (*self._proof.proves.values(), *(one.tests for one in self._proof.merged))
        tests = tuple(dict.fromkeys(test for tests in proving for test in tests))
        return self._runner.run(self._proof, python, tree.tree, tests)

    def _python(self, tree: SourceTree) -> Path:
        return self._asked.python or interpreter_for(self._stores, self._proof, tree, self._tell)


def interpreter(stores: Stores, proof: Proof, tell: Tell = lambda _: None) -> Path:
    """The interpreter of a proof's environment at the pins; made on the first call.

    Raises:
        StackError: the environment cannot be made.

    """
    return interpreter_for(stores, proof, stores.obtain(holder(stores)), tell)


def interpreter_for(stores: Stores, proof: Proof, tree: SourceTree, tell: Tell = lambda _: None) -> Path:
    """The interpreter of a proof's environment with the torch that a tree names, which is one of `holder`'s.

    Raises:
        StackError: the environment cannot be made.

    """
    requirements = proof.path.parent / "requirements.txt"
    if not requirements.is_file():
        raise StackError(f"{requirements} is missing", "list what the proofs of that folder import, beside torch")
    torch = environment.named(requirements) or environment.torch_version(stores.objects(tree.upstream), tree.tree)
    return environment.python(torch, requirements, stores.place.cache, tell)


def _place(stores: Stores, proof: Proof) -> str:
    return proof.path.resolve().relative_to(stores.stack.root.resolve()).as_posix()


def _first(tags: Sequence[str], tried: Callable[[str], Result]) -> str:
    """The first of some releases, the last of which passes, that passes: by bisection."""
    low, high = 0, len(tags) - 1
    while low < high:
        middle = (low + high) // 2
        if tried(tags[middle]).state is State.PASSES:
            high = middle
        else:
            low = middle + 1
    return tags[low]


def result(run: Run, tests: Sequence[str]) -> Result:
    """What a run says of some tests: they pass if all ran and passed; that they could not run proves nothing."""
    state, reason = _ended(run, tests)
    return Result(state, reason, run.output, run.cached)


def _ended(run: Run, tests: Sequence[str]) -> tuple[State, str]:
    broken = run.broken or _lacking(run, tests)
    if broken:
        return State.NOT_RUN, broken
    failed = [test for test in tests if test in run.failed]
    if failed:
        return State.FAILS, f"{failed[0]} fails" + (f" and {len(failed) - 1} more" if failed[1:] else "")
    skipped = [test for test in tests if test in run.skipped]
    if skipped:  # one case of it is enough: what it would have said is not known
        return State.NOT_RUN, f"{skipped[0]} was skipped"
    missing = [test for test in tests if test not in run.passed]
    if not missing:
        return State.PASSES, ""
    if run.passed or run.skipped:
        return State.NOT_RUN, f"there is no test {missing[0]}"
    return State.FAILS, "the module cannot be imported there"


def worst(results: Iterable[Result]) -> Result | None:
    """The worst of some results, the first of several that are alike; None of none."""
    order = (State.FAILS, State.NOT_RUN, State.PASSES)
    return min(results, key=lambda one: order.index(one.state), default=None)


def _lacking(run: Run, tests: Sequence[str]) -> str:
    """What some tests could not import, if anything."""
    ran = {*run.passed, *run.failed, *run.skipped}
    return f"the environment lacks {run.lacks}: name it in requirements.txt" if run.lacks and not {*tests} <= ran else ""


def holder(stores: Stores) -> str:
    """The upstream that names the torch of the environment: the first one."""
    return next(pin.upstream for pin in stores.stack.pins if pin.within is None)
