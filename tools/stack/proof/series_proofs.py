# SPDX-License-Identifier: Apache-2.0
"""Prove whole series: with each patch its tests pass, without it one fails.

On another release the tests may pass without the patch. It has then landed by behaviour, however the upstream implemented it.
Merged changes are still checked: their tests pass at the pins and fail on an earlier release.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.base.text import shortened
from stack.carry.outcome import Landed
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId, TreeId
from stack.model.series import PatchRef, Series
from stack.proof import brought_tests, command_run, environment, proof_module
from stack.proof.proof_module import Merged, Proof
from stack.proof.pytest_run import Run
from stack.proof.runner import Runner
from stack.store.sources import SourceTree

_WIDEST = 40
"""Columns of the name of a test, or of a command, in one line of evidence."""
_NEEDED = "fails: "
_UNREADABLE = "the module cannot be imported there"
_WHAT = 'a proof is a pytest module, test_*.py, or a command, { run = "make check" }'


class ProofState(StrEnum):
    """The outcome of a patch's tests."""

    PASSES = "passes"
    FAILS = "fails"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a patch's tests on one tree, with the reason if they did not run; `output` is pytest's.

    `cached`: the result comes from an earlier run with the same inputs.
    """

    state: ProofState
    reason: str = ""
    output: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class PatchProof:
    """The proof of one patch. `landed` is the first release found to pass without it."""

    ref: PatchRef
    proof: str
    tests: tuple[str, ...]
    with_patch: Result
    without: Result
    onto: Result | None = None
    landed: str | None = None

    @property
    def sound(self) -> bool:
        """Whether the proof is valid: it passes with the patch, and fails without it."""
        return self.with_patch.state is ProofState.PASSES and self.without.state is ProofState.FAILS


@dataclass(frozen=True, slots=True)
class Kept:
    """The proof of a merged change (see `Merged`): its tests at the pins, on an earlier release, and on another one."""

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
        """Whether the change is present, and its loss would be noticed."""
        there = self.onto is None or self.onto.state is not ProofState.FAILS
        return self.here.state is ProofState.PASSES and self.before.state is ProofState.FAILS and there


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """A request: the series to prove (default: all with proofs), and releases to try their tests on without the patches.

    `onto` maps an upstream to the releases on its way, the target last. If the tests pass there, bisection finds the first release
    that passes. `python` is an interpreter to use instead of the environments in the cache.
    """

    series: tuple[str, ...] = ()
    onto: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    python: Path | None = None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The result of a patch's tests on releases without it: the first that no longer needs it, or the reason why none is known."""

    ref: PatchRef
    tests: tuple[str, ...]
    landed: str | None
    reason: str = ""

    @property
    def unclear(self) -> bool:
        """Whether no test or command gave an answer, so that the patch may be needed or not."""
        return self.landed is None and (not self.reason.startswith(_NEEDED) or self.reason.endswith(_UNREADABLE))


def provable(stores: Stores) -> tuple[str, ...]:
    """Return the names of the series that have a proof: a test module or a command."""
    return tuple(series.name for series in stores.stack.series if _modules(series) or series.commands)


def _modules(series: Series) -> list[str]:
    return [path for path in series.proves if Path(path).name.startswith("test_") and path.endswith(".py")]


def proofs(stores: Stores, names: Sequence[str]) -> tuple[Proof, ...]:
    """Load the proofs of some series, or of all.

    Raises:
        StackError: A series is unknown or names no proof, or a proof cannot be read.

    """
    stack = stores.stack
    chosen = [stack.get(name) for name in names] or list(stack.series)
    loaded: dict[Path, Proof] = {}
    commands: list[Proof] = []
    for series in chosen:
        files = [stack.root / path for path in _modules(series)]
        if names and not files and not series.commands:
            raise StackError(f"series {series.name} names no proof in proves", _WHAT)
        loaded |= {file: proof_module.load(file, stack) for file in files}
        commands += [proof_module.of_command(series, command, stack) for command in series.commands]
    if not loaded and not commands:
        raise StackError("no series names a proof in proves", _WHAT)
    return (*loaded.values(), *commands)


def ways(stores: Stores, onto: Sequence[str], *, through: bool) -> dict[str, tuple[str, ...]]:
    """Parse `TAG` (of the first upstream) or `UPSTREAM=TAG` into the releases on each upstream's way; `through` adds those between.

    Raises:
        StackError: An upstream is unknown or named twice, or its releases cannot be listed.

    """
    releases: dict[str, tuple[str, ...]] = {}
    for named in onto:
        name, _, tag = named.rpartition("=")
        pin = stores.stack.pins.get(name or holder(stores))
        if pin.upstream in releases:
            raise StackError(
                f"--onto names {pin.upstream} twice: {releases[pin.upstream][-1]} and {tag}", "name one release of it"
            )
        between = pin.releases.between(stores.tags(pin.upstream), pin.revision, tag) if through else []
        releases[pin.upstream] = (*between, tag)
    return releases


def verdicts(runner: Runner, request: ProofRequest, tell: Progress = silent) -> Iterator[PatchProof]:
    """Prove every patch, one after the other.

    Raises:
        StackError: A proof or a source is not available, or the environment cannot be made.

    """
    for proof in proofs(runner.stores, request.series):
        trial = _Trial(runner, proof, request, tell)
        for ref in proof.refs():
            tests = proof.proves[ref.file]
            here = trial.whole(tests)
            without = trial.without(ref)
            onto, landed = trial.elsewhere(ref)
            yield PatchProof(ref, _place(runner.stores, proof), tests, here, without, onto, landed)


def kept(runner: Runner, request: ProofRequest, tell: Progress = silent) -> Iterator[Kept]:
    """Check every merged change, one after the other.

    Raises:
        StackError: As for `verdicts`.

    """
    for proof in proofs(runner.stores, request.series):
        trial = _Trial(runner, proof, request, tell)
        for merged in proof.merged:
            here = trial.whole(merged.tests)
            before, onto = trial.before(merged), trial.there(merged.tests)
            yield Kept(
                proof.series, merged.address, _place(runner.stores, proof), merged.tests, here, merged.fails_on, before, onto
            )


def behaviour(runner: Runner, request: ProofRequest, tell: Progress = silent) -> Iterator[Behaviour]:
    """Find which patches the releases of `request.onto` no longer need; all proofs of a patch must be valid and agree.

    Raises:
        StackError: A proof or a source is not available, or the environment cannot be made.

    """
    by_patch: dict[PatchRef, list[Behaviour]] = {}
    for proof in proofs(runner.stores, request.series):
        trial = _Trial(runner, proof, request, tell)
        for ref in proof.refs():
            outcome = _behaviour(trial, ref, proof.proves[ref.file])
            if outcome is not None:
                by_patch.setdefault(ref, []).append(outcome)
    for ref, outcomes in by_patch.items():
        way = request.onto[ref.upstream]
        tests = tuple(test for outcome in outcomes for test in outcome.tests)
        needed = next((outcome for outcome in outcomes if outcome.landed is None), None)
        last = max((outcome.landed for outcome in outcomes if outcome.landed is not None), key=way.index, default=None)
        yield Behaviour(ref, tests, last) if needed is None else needed


def landings(found: Iterable[Behaviour], commits: Mapping[str, Mapping[str, CommitId]]) -> dict[str, Landed]:
    """Map the path of each patch that landed by behaviour to its evidence; `commits` are those of each upstream's releases."""
    return {
        one.ref.path: Landed(
            commits[one.ref.upstream][one.landed],
            f"{_shown(one.tests)} without it",
            1.0,
            one.landed,
            behaviour=True,
        )
        for one in found
        if one.landed is not None
    }


def _shown(tests: Sequence[str]) -> str:
    """Name tests that pass, in few words: the proof lists all of them."""
    if len(tests) == 1:
        return f"{shortened(tests[0], _WIDEST)} passes"
    first = ", ".join(tests[:2])
    return (
        f"{first} pass"
        if len(tests) == 2 and len(first) <= _WIDEST
        else f"{shortened(tests[0], _WIDEST)} and {len(tests) - 1} more pass"
    )


def _behaviour(trial: "_Trial", ref: PatchRef, tests: tuple[str, ...]) -> Behaviour | None:
    """Return one proof's result for a patch; None if `onto` has no release of its upstream."""
    onto, landed = trial.elsewhere(ref)
    if onto is None:
        return None
    if landed is None:
        return Behaviour(ref, tests, None, f"{onto.state.value}: {onto.reason}")
    if trial.whole(tests).state is not ProofState.PASSES or trial.without(ref).state is not ProofState.FAILS:
        return Behaviour(ref, tests, None, "the proof does not hold at the pins: see `stack prove`")
    return Behaviour(ref, tests, landed)


def idle(runner: Runner, request: ProofRequest, tell: Progress = silent) -> Iterator[PatchRef]:
    """Find the patches without which all proofs of their series still pass.

    Raises:
        StackError: As for `verdicts`.

    """
    for proof in proofs(runner.stores, request.series):
        python = request.python or interpreter(runner.stores, proof, tell)
        for ref in proof.refs():
            tell(f"{proof.name} without {ref.path}")
            try:
                tree = proof_module.tree(runner.stores, proof.upstream, without=ref, tests=proof.proves[ref.file])
            except StackError:
                continue  # a later patch depends on it, so it is needed
            if runner.run(proof, python, tree).good:
                yield ref


def unnamed(stores: Stores, names: Sequence[str]) -> dict[PatchRef, tuple[str, ...]]:
    """Find the test files that patches change in upstream's tree and no proof of theirs names; only patches that have such files.

    Raises:
        StackError: A proof cannot be read.

    """
    named: dict[PatchRef, list[str]] = {}
    for proof in proofs(stores, names):
        for ref in proof.refs():
            named.setdefault(ref, []).extend(proof.proves[ref.file])
    files = {ref: brought_tests.unnamed(stores.stack.patches[ref], tests) for ref, tests in named.items()}
    return {ref: paths for ref, paths in files.items() if paths}


class _Trial:
    """One proof module and its runs on several trees."""

    def __init__(self, runner: Runner, proof: Proof, request: ProofRequest, tell: Progress) -> None:
        self._runner = runner
        self._stores = runner.stores
        self._proof = proof
        self._request = request
        self._tell = tell

    @functools.cached_property
    def _own_python(self) -> Path:
        return self._python(self._stores.obtain(holder(self._stores)))

    @functools.cache  # noqa: B019  (a trial is short-lived)
    def whole(self, tests: tuple[str, ...]) -> Result:
        """Run some tests on the tree with all patches; the first call runs the others, too, unless it has kept results."""
        self._tell(f"{self._proof.name} with all patches")
        return result(self._runner.run(self._proof, self._own_python, self._tree, needed=tests), tests)

    @functools.cached_property
    def _tree(self) -> TreeId:
        return proof_module.tree(self._stores, self._proof.upstream)

    def without(self, ref: PatchRef) -> Result:
        """Run a patch's tests on the tree without it, and without later patches that depend on it."""
        self._tell(f"{self._proof.name} without {ref.path}")
        tests = self._proof.proves[ref.file]
        tree = proof_module.tree_without(self._stores, ref, tests)
        return result(self._runner.run(self._proof, self._own_python, tree, tests), tests)

    @functools.cache  # noqa: B019  (a trial is short-lived)
    def _earlier(self, release: str) -> Run:
        # In the environment of the pins: a separate one would take gigabytes.
        self._tell(f"{self._proof.name} on {self._proof.upstream} {release}")
        tree = self._stores.obtain(self._proof.upstream, release).tree
        return self._runner.run(self._proof, self._own_python, tree)

    def before(self, merged: Merged) -> Result:
        """Run the tests of a merged change on a release before it. If no test at all passes there, an import may be broken."""
        run = self._earlier(merged.fails_on)
        alone = self._proof.command is not None  # the only test, so no other one can show that the tree works
        return (
            result(run, merged.tests) if run.passed or alone else Result(ProofState.NOT_RUN, "nothing passes there", run.output)
        )

    def there(self, tests: Sequence[str]) -> Result | None:
        """Run some tests on the target release of the upstream."""
        way = self._request.onto.get(self._proof.upstream, ())
        return self._tried(tests, way[-1]) if way else None

    def elsewhere(self, ref: PatchRef) -> tuple[Result | None, str | None]:
        """Run a patch's tests on the target release without it; if they pass, also find the first release where they do."""
        way, tests = self._request.onto.get(self._proof.upstream, ()), self._proof.proves[ref.file]
        if not way:
            return None, None
        last = self._tried(tests, way[-1])
        if last.state is not ProofState.PASSES:
            return last, None
        return last, _first(way, lambda tag: self._tried(tests, tag))

    def _tried(self, tests: Sequence[str], tag: str) -> Result:
        """Run some tests on an unpatched release; the first call runs all that prove something, unless it has kept results."""
        self._tell(f"{self._proof.name} on {self._proof.upstream} {tag}")
        place = self._release(tag)
        if isinstance(place, Result):
            return place
        proving = (*self._proof.proves.values(), *(merged.tests for merged in self._proof.merged))
        every = tuple(dict.fromkeys(test for some in proving for test in some))
        return result(self._runner.run(self._proof, *place, every, needed=tests), tests)

    @functools.cache  # noqa: B019  (a trial is short-lived)
    def _release(self, tag: str) -> tuple[Path, TreeId] | Result:
        """Return the interpreter for a release and its tree, or why there is no interpreter."""
        tree = self._stores.obtain(self._proof.upstream, tag)
        named = holder(self._stores)
        try:
            python = self._python(tree if self._proof.upstream == named else self._stores.obtain(named))
        except StackError as failed:
            return Result(ProofState.NOT_RUN, failed.problem)
        tests = {ref: self._proof.proves[ref.file] for ref in self._proof.refs()}
        return python, brought_tests.with_tests(self._stores, tests, tree.tree)

    def _python(self, tree: SourceTree) -> Path:
        return self._request.python or interpreter_for(self._stores, self._proof, tree, self._tell)


def interpreter(stores: Stores, proof: Proof, tell: Progress = silent) -> Path:
    """Return the interpreter of a proof's environment at the pins; the first call makes it.

    Raises:
        StackError: The environment cannot be made.

    """
    return interpreter_for(stores, proof, stores.obtain(holder(stores)), tell)


def interpreter_for(stores: Stores, proof: Proof, tree: SourceTree, tell: Progress = silent) -> Path:
    """Return the interpreter of a proof's environment, with the base package that the list, or `tree` of the upstream `holder`, names.

    Raises:
        StackError: The environment cannot be made.

    """
    if proof.command is not None:
        return command_run.interpreter(proof.command, stores.stack.root, stores.place.cache, tell)
    requirements = proof.path.parent / "requirements.txt"
    if not requirements.is_file():
        raise StackError(f"{requirements} is missing", "list what the proofs of that folder import")
    base = environment.named(requirements) or environment.of_tree(stores.objects(tree.upstream), tree.tree)
    if base is None:
        return environment.listed(stores.place.cache, "proofs", requirements, "installing what the proofs need", tell)
    return environment.python(base, requirements, stores.place.cache, tell)


def _place(stores: Stores, proof: Proof) -> str:
    if proof.command is not None:
        return proof.command.run
    return proof.path.resolve().relative_to(stores.stack.root.resolve()).as_posix()


def _first(tags: Sequence[str], tried: Callable[[str], Result]) -> str:
    """Bisect for the first release that passes; the last one is known to pass."""
    low, high = 0, len(tags) - 1
    while low < high:
        middle = (low + high) // 2
        if tried(tags[middle]).state is ProofState.PASSES:
            high = middle
        else:
            low = middle + 1
    return tags[low]


def result(run: Run, tests: Sequence[str]) -> Result:
    """Judge some tests of a run: they pass if all ran and passed; tests that could not run prove nothing."""
    state, reason = _ended(run, tests)
    return Result(state, reason, run.output, run.cached)


def _ended(run: Run, tests: Sequence[str]) -> tuple[ProofState, str]:
    broken = run.broken or _lacking(run, tests)
    if broken:
        return ProofState.NOT_RUN, broken
    failed = [test for test in tests if test in run.failed]
    if failed:
        return ProofState.FAILS, f"{failed[0]} fails" + (f" and {len(failed) - 1} more" if failed[1:] else "")
    skipped = [test for test in tests if test in run.skipped]
    if skipped:  # one skipped parameter is enough: its outcome is unknown
        return ProofState.NOT_RUN, f"{skipped[0]} was skipped"
    missing = [test for test in tests if test not in run.passed]
    if not missing:
        return ProofState.PASSES, ""
    if run.passed or run.skipped:
        return ProofState.NOT_RUN, f"there is no test {missing[0]}"
    return ProofState.FAILS, _UNREADABLE


def worst(results: Iterable[Result]) -> Result | None:
    """Return the worst result, the first of equal ones; None if there are none."""
    order = (ProofState.FAILS, ProofState.NOT_RUN, ProofState.PASSES)
    return min(results, key=lambda each: order.index(each.state), default=None)


def _lacking(run: Run, tests: Sequence[str]) -> str:
    """Return a message about a package that some tests could not import; empty if there is none."""
    ran = {*run.passed, *run.failed, *run.skipped}
    return f"the environment lacks {run.lacks}: name it in requirements.txt" if run.lacks and not {*tests} <= ran else ""


def holder(stores: Stores) -> str:
    """Return the upstream whose tree names the base package of proofs: the first one that is not vendored."""
    return next(pin.upstream for pin in stores.stack.pins if pin.within is None)
