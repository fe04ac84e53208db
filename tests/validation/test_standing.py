# SPDX-License-Identifier: Apache-2.0
"""Verdicts of an earlier stack at a gate, and what `--stale` leaves to run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from stack.cli import validating
from stack.model import digest
from stack.model import stack as stacks
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome, Verdict, load, load_file
from stack.validation import bound, gates
from stack.validation.gates import Judgement
from stack.validation.suite import Job, NothingToRun, RunOptions, ValidatedSubject, run

from .factories import CHAT, ONE, TWO, answered, exact, failed, file
from .test_bound import MARLIN, of, stack_with

GATE = """\
[cpu]
has = ["cpu"]
[[cpu.cases]]
names = "kernels/*"
least = 1
"""
SERVES = '[[cpu.cases]]\nnames = "serve/*"\nleast = 1\n'


@pytest.fixture
def earlier(tmp_path: Path) -> tuple[Path, Verdict]:
    """A verdict of an earlier stack: a kernel and a server."""
    out = tmp_path / "earlier.json"
    independent = replace(exact(ONE), used={"vllm": (), "flashinfer": ()})
    return out, run(stack_with(tmp_path / "made"), lambda _: [independent, answered()], ValidatedSubject(), RunOptions(out))


@pytest.fixture
def now(tmp_path: Path) -> Stack:
    return stack_with(tmp_path / "now", vllm=of(MARLIN))


def judged(stack: Stack, *files: Path, text: str = GATE, signers: Path | None = None) -> Judgement:
    (stack.root / "gates.toml").write_text(text)
    return gates.judge_files(gates.load(stack.root / "gates.toml", "cpu"), gates.release(stack), files, signers)


def test_a_case_whose_inputs_are_the_same_counts_and_the_others_fall_out(earlier: tuple[Path, Verdict], now: Stack) -> None:
    out, _ = earlier
    found = judged(now, out)
    assert found.problems == ()
    [standing] = found.standing
    assert (standing.counts, list(standing.fallen)) == ((ONE,), [CHAT])
    assert str(standing.fallen[CHAT]) == f"vllm: vllm/harmony/parser.py, {MARLIN} differ"
    [problem, fewer] = judged(now, out, text=GATE + SERVES).problems
    assert problem == f"{CHAT} was not run: its verdict no longer counts (vllm: vllm/harmony/parser.py, {MARLIN} differ)"
    assert fewer == "serve/*: 0 passed, 1 are needed"


def test_what_fell_out_counts_by_another_verdict(earlier: tuple[Path, Verdict], now: Stack, tmp_path: Path) -> None:
    run(now, lambda _: [answered()], ValidatedSubject(), RunOptions(tmp_path / "new.json"))
    found = judged(now, earlier[0], tmp_path / "new.json", text=GATE + SERVES)
    assert found.problems == ()
    assert [one.counts for one in found.standing] == [(ONE,), (CHAT,)]


def test_a_failure_counts_as_long_as_its_case_stands(tmp_path: Path, now: Stack) -> None:
    bad = [replace(failed(TWO, "cpu"), used={"vllm": (), "flashinfer": ()}), failed(CHAT, "cpu")]
    independent = replace(exact(ONE), used={"vllm": (), "flashinfer": ()})
    run(stack_with(tmp_path / "made"), lambda _: [independent, *bad], ValidatedSubject(), RunOptions(tmp_path / "bad.json"))
    [problem] = judged(now, tmp_path / "bad.json").problems
    assert problem == f"{tmp_path / 'bad.json'}: {TWO} failed: it is wrong"


def test_a_verdict_of_which_nothing_stands_is_of_another_stack(earlier: tuple[Path, Verdict], tmp_path: Path) -> None:
    _, made = earlier
    stack = stack_with(tmp_path / "pinned", vllm=of(MARLIN))
    only = file(tmp_path, "only.json", replace(made, cases=made.cases[1:]))
    [problem, *_] = judged(stack, only).problems
    assert problem.startswith(
        f"{only} is of the stack {made.stack[:12]}, this one is {digest.of(stack)[:12]}, and no case of it counts here"
    )
    bare = file(tmp_path, "bare.json", replace(made, cases=tuple(replace(one, inputs={}) for one in made.cases), inputs={}))
    assert judged(stack, bare).problems[0].endswith(f"this one is {digest.of(stack)[:12]}: validate this one")


def test_other_code_of_the_validation_leaves_what_it_does_not_judge(earlier: tuple[Path, Verdict], tmp_path: Path) -> None:
    _, made = earlier
    stack = stacks.load(tmp_path / "made")
    other = file(tmp_path, "other.json", replace(made, versions={**made.versions, "validation": "0" * 12}))
    assert judged(stack, other, text=GATE + SERVES).problems == ()
    bare = replace(load(other), cases=tuple(replace(one, inputs={}) for one in made.cases), inputs={})
    assert "it was made by validation 000000000000" in " ".join(judged(stack, file(tmp_path, "bare.json", bare)).problems)


def test_what_is_carried_is_judged_like_all_else(earlier: tuple[Path, Verdict], now: Stack, tmp_path: Path) -> None:
    """Signature, bars and what was installed: whatever a verdict's stack is."""
    out, made = earlier
    assert (
        "is not signed" in judged(now, out, signers=out).problems[0] or "signature" in judged(now, out, signers=out).problems[0]
    )
    beyond = replace(made.cases[0], measured={**made.cases[0].measured, "differing": 3})
    problems = judged(now, file(tmp_path, "beyond.json", replace(made, cases=(beyond, made.cases[1])))).problems
    assert "differing is 3; it must be from 0 to 0" in problems[0]
    for label, count in ((made.stack[:8], 0), ("0" * 8, 1)):
        versions = {**made.versions, "vllm": f"1.0.0+sm121.g{label}"}
        assert len(judged(now, file(tmp_path, "label.json", replace(made, versions=versions))).problems) == count


def test_not_even_an_own_verdict_may_name_other_inputs(earlier: tuple[Path, Verdict], tmp_path: Path) -> None:
    """Its case would count for the stack whose inputs it names."""
    _, made = earlier
    stack = stacks.load(tmp_path / "made")
    other = bound.of(stack_with(tmp_path / "other", vllm=of(MARLIN)), answered())
    listed = {one.digest: one for one in other.values()}
    cases = (made.cases[0], replace(made.cases[1], inputs={kind: one.digest for kind, one in other.items()}))
    forged = file(tmp_path, "forged.json", replace(made, cases=cases, inputs={**made.inputs, **listed}))
    assert f"{CHAT} was not run: its verdict no longer counts" in judged(stack, forged, text=GATE + SERVES).problems[0]


class Suite:
    """Counts what it runs."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, job: Job) -> Iterator[Case]:
        for one in (exact(ONE), exact(TWO), replace(failed("kernels/formats/e8m0/torch", "cpu"))):
            if job.wants(one.name):
                self.ran.append(one.name)
                yield one


def test_only_what_has_fallen_out_is_run(earlier: tuple[Path, Verdict], now: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    kept = now.root / ".stack/verdicts"
    kept.mkdir(parents=True)
    (kept / "old.json").write_bytes(earlier[0].read_bytes())
    (kept / "broken.json").write_text("{}")
    context = click.Context(click.Command("kernels"))

    def stale(suite: Suite) -> int:
        with pytest.raises(click.exceptions.Exit) as ended:
            validating.conclude(
                context, now, suite, "kernels", only=("*formats/e[24]*",), resume=False, stale=True, out=None, as_json=False
            )
        return ended.value.exit_code

    assert stale(suite := Suite()) == 0
    assert suite.ran == [TWO]
    target = kept / f"kernels-{digest.of(now)[:12]}.json"
    assert [one.name for one in load(target).cases] == [TWO]
    assert judged(now, earlier[0], target).problems == ()
    target.rename(kept / "second.json")
    capsys.readouterr()
    assert stale(suite := Suite()) == 0
    assert suite.ran == []
    assert capsys.readouterr().out == "nothing has fallen out: 2 cases stand\n"
    assert not target.exists()


def test_a_failed_case_is_run_again(now: Stack, tmp_path: Path) -> None:
    bad = replace(exact(TWO), outcome=Outcome.FAILED, why="it is wrong")
    run(now, lambda _: [exact(ONE), bad], ValidatedSubject(), RunOptions(tmp_path / "one.json"))
    assert gates.passed(gates.release(now), [load_file(tmp_path / "one.json")], "kernels/") == {ONE}
    assert gates.passed(gates.release(now), [load_file(tmp_path / "one.json")], "serve/") == frozenset()
    with pytest.raises(NothingToRun):
        run(
            now,
            lambda job: [one for one in (exact(ONE),) if job.wants(one.name)],
            ValidatedSubject(),
            RunOptions(tmp_path / "two.json", standing=frozenset({ONE})),
        )
