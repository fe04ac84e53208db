# SPDX-License-Identifier: Apache-2.0
"""Proving whole series: with each patch its tests pass, without it one fails, and on another release they may pass by themselves.

What passes on a release without the patch has landed by behaviour, however upstream spelled it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from stack.carry import ladder
from stack.carry.bases import Stores
from stack.model.errors import StackError
from stack.model.ids import TreeId
from stack.model.series import PatchRef
from stack.proof import environment, prove
from stack.proof.prove import Proof, Run
from stack.store.sources import SourceTree

Tell = Callable[[str], None]


class State(StrEnum):
    """How the tests of a patch ended."""

    PASSES = "passes"
    FAILS = "fails"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Result:
    """How the tests of a patch ended on one tree, and why where they did not run; `output` is what pytest printed."""

    state: State
    reason: str = ""
    output: str = ""


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
class Asked:
    """What to prove: series (all that have proofs, unless named), and the release to try them on without the patches.

    `through`: find the first release up to there on which they pass, by bisection. `python`: an interpreter in place of the
    environments in the cache.
    """

    series: tuple[str, ...] = ()
    onto: str | None = None
    through: bool = False
    python: Path | None = None


def proofs(stores: Stores, names: Sequence[str]) -> tuple[Proof, ...]:
    """The proof modules of some series, or of all.

    Raises:
        StackError: no such series, a series that names no proof, or a proof that cannot be read.

    """
    stack = stores.stack
    chosen = [stack.get(name) for name in names] or list(stack.series)
    found: dict[Path, Proof] = {}
    for one in chosen:
        files = [stack.root / path for path in one.proves if Path(path).name.startswith("test_") and path.endswith(".py")]
        if names and not files:
            raise StackError(f"series {one.name} names no test module in proves", "a proof is a pytest module, test_*.py")
        found |= {file: prove.load(file, stack) for file in files}
    if not found:
        raise StackError("no series names a test module in proves", "a proof is a pytest module, test_*.py")
    return tuple(found.values())


def verdicts(stores: Stores, asked: Asked, tell: Tell = lambda _: None) -> Iterator[Verdict]:
    """Prove every patch, one after the other.

    Raises:
        StackError: a proof or a source cannot be had, or the environment cannot be made.

    """
    for proof in proofs(stores, asked.series):
        python = asked.python or _python(stores, proof, stores.obtain(_holder(stores)), tell)
        tell(f"{proof.path.name} with all patches")
        whole = prove.run(proof, python, stores, prove.tree(stores, proof.upstream))
        for ref in proof.refs():
            tests = proof.proves[ref.file]
            tell(f"{proof.path.name} without {ref.path}")
            without = _without(stores, proof, python, ref)
            onto, landed = _elsewhere(stores, proof, ref, asked, tell)
            path = proof.path.resolve().relative_to(stores.stack.root.resolve()).as_posix()
            yield Verdict(ref, path, tests, _result(whole, tests), without, onto, landed)


def idle(stores: Stores, asked: Asked, tell: Tell = lambda _: None) -> Iterator[PatchRef]:
    """The patches without which all proofs of their series still pass.

    Raises:
        StackError: as `verdicts`.

    """
    for proof in proofs(stores, asked.series):
        python = asked.python or _python(stores, proof, stores.obtain(_holder(stores)), tell)
        for ref in proof.refs():
            tell(f"{proof.path.name} without {ref.path}")
            try:
                tree = prove.tree(stores, proof.upstream, without=ref)
            except StackError:
                continue  # a later patch stands on it: it does something
            if prove.run(proof, python, stores, tree).good:
                yield ref


def _without(stores: Stores, proof: Proof, python: Path, ref: PatchRef) -> Result:
    """The tests of a patch on the tree without it; where later patches stand on it, on upstream's own."""
    try:
        tree = prove.tree(stores, proof.upstream, without=ref)
    except StackError:
        tree = _bare(stores, proof)
    tests = proof.proves[ref.file]
    return _result(prove.run(proof, python, stores, tree, tests), tests)


def _bare(stores: Stores, proof: Proof) -> TreeId:
    return stores.objects(proof.upstream).tree_of(stores.base(proof.upstream))


def _elsewhere(stores: Stores, proof: Proof, ref: PatchRef, asked: Asked, tell: Tell) -> tuple[Result | None, str | None]:
    """The tests of a patch on another release without it; and, if they pass there, since which release they do."""
    pin = stores.stack.pins.get(proof.upstream)
    if asked.onto is None or pin.within is not None:
        return None, None

    def tried(tag: str) -> Result:
        tell(f"{proof.path.name} on {proof.upstream} {tag}")
        return _on_release(stores, proof, ref, stores.obtain(proof.upstream, tag), asked, tell)

    found = tried(asked.onto)
    if found.state is not State.PASSES:
        return found, None
    tags = [*ladder.between(stores.tags(proof.upstream), pin.tag or "", asked.onto), asked.onto] if asked.through else []
    return found, _first(tags, tried) if tags else asked.onto


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


def _on_release(stores: Stores, proof: Proof, ref: PatchRef, tree: SourceTree, asked: Asked, tell: Tell) -> Result:
    try:
        holder = tree if proof.upstream == _holder(stores) else stores.obtain(_holder(stores))
        python = asked.python or _python(stores, proof, holder, tell)
    except StackError as failed:
        return Result(State.NOT_RUN, failed.problem)
    tests = proof.proves[ref.file]
    return _result(prove.run(proof, python, stores, tree.tree, tests), tests)


def _result(run: Run, tests: Sequence[str]) -> Result:
    """What a run says of some tests: they pass if all ran and passed; that they could not run proves nothing."""
    failed = [test for test in tests if test in run.failed]
    if failed:
        return Result(State.FAILS, f"{failed[0]} fails" + (f" and {len(failed) - 1} more" if failed[1:] else ""), run.output)
    missing = [test for test in tests if test not in run.passed]
    if not missing:
        return Result(State.PASSES, "", run.output)
    if missing[0] in run.skipped:
        return Result(State.NOT_RUN, f"{missing[0]} was skipped", run.output)
    if run.passed or run.skipped:
        return Result(State.NOT_RUN, f"there is no test {missing[0]}", run.output)
    return Result(State.FAILS, "the module cannot be imported there", run.output)


def _holder(stores: Stores) -> str:
    """The upstream that names the torch of the environment: the first one."""
    return next(pin.upstream for pin in stores.stack.pins if pin.within is None)


def _python(stores: Stores, proof: Proof, tree: SourceTree, tell: Tell) -> Path:
    requirements = proof.path.parent / "requirements.txt"
    torch = environment.torch_version(stores.objects(tree.upstream), tree.tree)
    if not requirements.is_file():
        raise StackError(f"{requirements} is missing", "list what the proofs of that folder import, beside torch")
    return environment.python(torch, requirements, stores.place.cache, tell)
