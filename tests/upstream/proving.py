# SPDX-License-Identifier: Apache-2.0
"""How the project's own pytest runs a proof: as a few items that start it in the upstream's environment.

With all patches it has to pass; without one of them, a test named for that patch has to fail; and the upstream's own tests
for those places have to pass on the patched tree as they do on the bare one. Tests of what upstream has merged have to fail
on an earlier release.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.carry.upstream_stores import Place, Stores
from stack.model.series import PatchRef
from stack.model.stack import load
from stack.proof import brought_tests, environment, proof_module
from stack.proof.proof_module import Proof
from stack.proof.runner import Runner
from stack.store import cache, results
from tests.keeping import KEPT
from tests.upstream import differential

ROOT = Path(__file__).parents[2]
OURS = functools.cache(functools.partial(load, ROOT))
"""This project's stack."""
SHOWN = 6000
"""Characters of a run's output that a failure shows, from its end."""


class ProofFile(pytest.File):
    """One proof."""

    def collect(self) -> Iterator[pytest.Item]:
        """With all patches, without each, before each merge, and the upstream's own tests."""
        proof = proof_module.load(self.path, OURS())
        yield WithPatches.from_parent(self, name="passes-with-all-patches", proof=proof)
        for ref in proof.refs():
            yield Without.from_parent(self, name=f"fails-without[{ref.file}]", proof=proof, ref=ref)
        for release in dict.fromkeys(one.fails_on for one in proof.merged):
            yield Before.from_parent(self, name=f"fails-on[{release}]", proof=proof, release=release)
        if proof.upstream_tests:
            yield UpstreamsOwn.from_parent(self, name="upstreams-own-tests-still-pass", proof=proof)
        if self.path.name == differential.BESIDE:
            yield Unaffected.from_parent(self, name="choices-change-where-patches-mean-it", proof=proof)


class Session:
    """Stores, environment and fork server of one pytest process, shared by its proofs."""

    def __init__(self) -> None:
        self._exit = contextlib.ExitStack()
        self.stores = self._exit.enter_context(Stores(OURS(), Place(cache.root())))
        self.runner = self._exit.enter_context(Runner(self.stores, again=results.again()))

    @functools.cache  # noqa: B019  (there is one in a process)
    def python(self, requirements: Path) -> Path:
        """The interpreter of the environment, which is made unless it is there."""
        base = environment.of_tree(self.stores.objects("vllm"), self.stores.obtain("vllm").tree)
        return environment.python(base, requirements, self.stores.place.cache)

    def close(self) -> None:
        """End the processes."""
        self._exit.close()


SESSION = pytest.StashKey[Session]()


def session_of(config: pytest.Config) -> Session:
    """The session of this pytest process, opened by the first proof that asks for it."""
    if SESSION not in config.stash:
        opened = config.stash[SESSION] = Session()
        config.add_cleanup(opened.close)
    return config.stash[SESSION]


class ProofItem(pytest.Item):
    """One run of a proof."""

    def __init__(self, *, proof: Proof, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.proof = proof
        self.add_marker("proofs")

    def runtest(self) -> None:
        """Run the proof and judge, unless the result of a run with the same inputs is kept."""
        session = session_of(self.config)
        before = session.runner.ran
        self.check(session.runner, session.python(self.path.parent / "requirements.txt"))
        if session.runner.ran == before:
            self.user_properties.append((KEPT, True))

    def check(self, runner: Runner, python: Path) -> None:
        """Run and judge."""
        raise NotImplementedError

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """The run's own output says what failed."""
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The name in reports."""
        return self.path, None, f"{self.proof.path.name}: {self.name}"


class WithPatches(ProofItem):
    """The proof passes, whole, with all patches."""

    def check(self, runner: Runner, python: Path) -> None:
        """Run it on the patched tree."""
        run = runner.run(self.proof, python, proof_module.tree(runner.stores, self.proof.upstream))
        assert run.good and not run.skipped, run.output[-SHOWN:]


class Without(ProofItem):
    """A test named for a patch fails when that patch alone is left out."""

    def __init__(self, *, ref: PatchRef, **rest: object) -> None:
        super().__init__(**rest)
        self.ref = ref

    def check(self, runner: Runner, python: Path) -> None:
        """Run its tests on the tree without it and what stands on it; all of them have to run: a broken import is no failure."""
        tests = self.proof.proves[self.ref.file]
        run = runner.run(self.proof, python, proof_module.tree_without(runner.stores, self.ref, tests), tests)
        assert set(run.failed) & set(tests), f"no test of {self.ref.file} fails without it:\n{run.output[-SHOWN:]}"
        assert {*run.passed, *run.failed} >= set(tests), f"not all tests ran:\n{run.output[-SHOWN:]}"


class Before(ProofItem):
    """For each thing that upstream has merged since a release, a test fails there, where others pass."""

    def __init__(self, *, release: str, **rest: object) -> None:
        super().__init__(**rest)
        self.release = release

    def check(self, runner: Runner, python: Path) -> None:
        """Run it there."""
        earlier = runner.stores.obtain(self.proof.upstream, self.release).tree
        run = runner.run(self.proof, python, earlier)
        assert run.passed, f"nothing passes on {self.release}, which may be a broken import:\n{run.output[-SHOWN:]}"
        for one in (one for one in self.proof.merged if one.fails_on == self.release):
            assert set(run.failed) & set(one.tests), f"no test of {one.address} fails there:\n{run.output[-SHOWN:]}"
            assert {*run.passed, *run.failed} >= set(one.tests), f"not all tests ran:\n{run.output[-SHOWN:]}"


class Unaffected(ProofItem):
    """Of a grid of configurations, only those that a patch is about choose otherwise than on the bare tree."""

    def check(self, runner: Runner, python: Path) -> None:
        """Compare both trees."""
        outcome = differential.compare(runner, python)
        assert not outcome.unmeant, "\n".join(outcome.unmeant[:40])
        assert all(outcome.meant.values()), f"a patch that changes no choice of the grid: {dict(outcome.meant)}"


class UpstreamsOwn(ProofItem):
    """The upstream's own tests pass with the patches as they do without."""

    def check(self, runner: Runner, python: Path) -> None:
        """Run them on the bare tree and on the patched one."""
        stores, upstream = runner.stores, self.proof.upstream
        before = runner.run_upstream(self.proof, python, stores.objects(upstream).tree_of(stores.base(upstream)))
        after = runner.run_upstream(self.proof, python, proof_module.tree(stores, upstream))
        assert before.good, f"on the bare tree:\n{before.output[-SHOWN:]}"
        assert after.good, f"on the patched tree:\n{after.output[-SHOWN:]}"
        lost, more = Counter(before.passed) - Counter(after.passed), Counter(after.passed) - Counter(before.passed)
        assert not lost
        brought = {test.rpartition("::")[2] for ref in OURS().order(upstream) for test in brought_by(ref.ref)}
        assert {name.rpartition("::")[2] for name in more} <= brought


def brought_by(ref: PatchRef) -> tuple[str, ...]:
    """The tests of upstream's own test files that proofs name for a patch."""
    modules = (ROOT / path for path in OURS().get(ref.series).proves if Path(path).name.startswith("test_"))
    named = (test for path in modules for test in proof_module.load(path, OURS()).proves.get(ref.file, ()))
    return brought_tests.apart(named)[1]
