# SPDX-License-Identifier: Apache-2.0
"""`--stale`: a case stands only for what it was measured on, and no verdict is replaced."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from stack.base.errors import StackError
from stack.cli import validating
from stack.model import digest
from stack.model.stack import Stack
from stack.model.verdict import Case, Gpu, Machine, Outcome, Weights, load, load_file, write
from stack.validation import gates, machine, standing
from stack.validation.suite import Job, RunOptions, ValidatedSubject, run
from tests.validation.factories import CHAT, ONE, TWO, answered, exact

from .test_bound import of, stack_with

ON_GPU = Case("serve/marlin/chat", Outcome.PASSED, needs=("sm90", "sm121"))
"""A case that the server of a GPU machine's archive answers."""


@pytest.fixture
def now(tmp_path: Path) -> Stack:
    return stack_with(tmp_path / "now")


def kept(stack: Stack, case: Case, subject: ValidatedSubject, **fields: object) -> Path:
    """A verdict of one case, in the folder of verdicts."""
    file = stack.root / ".stack/verdicts/kept.json"
    made = run(stack, lambda _: [case], subject, RunOptions(file))
    file.write_bytes(write(replace(made, **fields)))  # type: ignore[arg-type]
    return file


def names(stack: Stack, file: Path, subject: ValidatedSubject, suite: str = "serve") -> set[str]:
    return {*standing.names(stack, [load_file(file)], suite, subject)}


TINY = ValidatedSubject("cpu-fp32", Weights.TINY, {"model": "a", "vllm": "1"})


@pytest.mark.parametrize(
    ("subject", "stands"),
    [
        (TINY, True),
        (replace(TINY, recipe="cpu-mxfp4", versions={"model": "a"}), True),  # names of cases have the recipe
        (replace(TINY, weights=Weights.REAL), False),
        (replace(TINY, versions={"model": "b"}), False),
        (replace(TINY, image="sha256:" + "1" * 64), False),
    ],
)
def test_a_case_stands_for_the_same_weights_model_and_image(now: Stack, subject: ValidatedSubject, stands: bool) -> None:
    assert names(now, kept(now, answered(), TINY), subject) == ({CHAT} if stands else set())


def test_a_verdict_of_an_image_stands_for_no_other_run(now: Stack) -> None:
    file = kept(now, answered(), TINY, image="sha256:" + "1" * 64)
    assert names(now, file, TINY) == set()


def test_a_verdict_of_an_image_counts_for_no_other_stack(now: Stack, tmp_path: Path) -> None:
    independent = replace(exact(ONE), used={"vllm": (), "flashinfer": ()})
    file = kept(now, independent, TINY, image="sha256:" + "1" * 64)
    other = stack_with(tmp_path / "other", vllm=of("vllm/unrelated.py"))
    release = gates.release(other)
    with pytest.raises(StackError, match=r"is of the stack \w+, this one is \w+: validate this one"):
        gates.stand(release, load_file(file))
    found, _ = gates.stand(gates.release(now), load_file(file))
    assert found.counts == (ONE,)


def with_gpu(capability: str | None) -> Machine:
    gpus = (Gpu("one", capability, 2**30, "1"),) if capability is not None else ()
    return replace(machine.here(), gpus=gpus)


@pytest.mark.parametrize(("here", "stands"), [("9.0", True), ("12.1", False), (None, True)])
def test_a_case_on_a_gpu_stands_for_machines_with_such_a_gpu(
    now: Stack, monkeypatch: pytest.MonkeyPatch, here: str | None, stands: bool
) -> None:
    """On a machine without a GPU it could not be run anyway."""
    file = kept(now, ON_GPU, ValidatedSubject(weights=Weights.DUMMY), machine=with_gpu("9.0"))
    at_hand = with_gpu(here)
    monkeypatch.setattr(machine, "here", lambda: at_hand)
    assert names(now, file, ValidatedSubject(weights=Weights.DUMMY)) == ({ON_GPU.name} if stands else set())


@pytest.fixture
def stale(now: Stack, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Run a suite of two cases with --stale; the names of those that ran."""

    def go(*only: str, resume: bool = False) -> list[str]:
        ran = []

        def suite(job: Job) -> Iterator[Case]:
            for one in (exact(ONE), exact(TWO)):
                if job.wants(one.name):
                    ran.append(one.name)
                    yield one

        context = click.Context(
            click.Command("kernels"), click.Context(click.Group("validate"), click.Context(click.Group("stack")))
        )
        with pytest.raises(click.exceptions.Exit), context:
            validating.conclude(
                context,
                *(now, suite, "kernels"),
                only=only,
                resume=resume,
                stale=True,
                out=None,
                as_json=True,
            )
        capsys.readouterr()
        return ran

    return go


def test_what_a_stale_run_has_found_is_kept_by_the_next(now: Stack, stale: Callable[..., list[str]]) -> None:
    assert stale(ONE) == [ONE]
    assert stale() == [TWO]
    assert stale() == []
    names = [f"kernels-{digest.of(now)[:12]}{number}.json" for number in ("", "-2")]
    folder = now.root / ".stack/verdicts"
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert [[case.name for case in load(folder / name).cases] for name in names] == [[ONE], [TWO]]


def test_a_stale_run_that_was_broken_off_is_gone_on_with(now: Stack, stale: Callable[..., list[str]]) -> None:
    assert stale(ONE) == [ONE]
    file = now.root / f".stack/verdicts/kernels-{digest.of(now)[:12]}.json"
    file.write_bytes(write(replace(load(file), whole=False)))
    assert stale(resume=True) == [TWO]
    assert [case.name for case in load(file).cases] == [ONE, TWO]
    file.write_bytes(write(replace(load(file), whole=False)))
    assert stale() == [ONE, TWO]  # it counts for nothing, and stays
    assert not load(file).whole


def test_a_verdict_in_which_no_case_ran_is_replaced(tmp_path: Path, now: Stack) -> None:
    target = tmp_path / "kernels.json"
    assert standing.free(target) == target
    run(now, lambda _: [Case(ONE, Outcome.NOT_RUN, "no GPU", ("sm90",))], ValidatedSubject(), RunOptions(target))
    assert standing.free(target) == target
    target.write_text("{}")
    assert standing.free(target) == tmp_path / "kernels-2.json"
