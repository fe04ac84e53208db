# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from stack.base.errors import StackError
from stack.model import digest, stack
from stack.model import verdict as verdicts
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome, Verdict, load
from stack.validation.suite import Job, RunOptions, ValidatedSubject, look_ahead, look_at_earlier, run

from ..model.factories import FILES, patch, write

NAMES = ("kernels/one", "kernels/two", "kernels/far")
ENDS = {"kernels/one": Outcome.PASSED, "kernels/two": Outcome.FAILED, "kernels/far": Outcome.NOT_RUN}


@pytest.fixture
def carried(tmp_path: Path) -> Stack:
    write(tmp_path, FILES)
    return stack.load(tmp_path)


class Counting:
    """A suite that notes which of its cases ran; it breaks off before `until`."""

    def __init__(self, until: str = "") -> None:
        self.ran: list[str] = []
        self.until = until

    def __call__(self, job: Job) -> Iterator[Case]:
        for name in filter(job.wants, NAMES):
            if name == self.until:
                raise KeyboardInterrupt
            self.ran.append(name)
            yield Case(name, ENDS[name], "" if ENDS[name] is Outcome.PASSED else "of some reason")


def ended(verdict: Verdict) -> dict[str, Outcome]:
    return {case.name: case.outcome for case in verdict.cases}


def test_a_run_is_written_as_it_was_handed_back(carried: Stack, tmp_path: Path) -> None:
    out = tmp_path / "deep/er/verdict.json"
    verdict = run(carried, Counting(), ValidatedSubject(), RunOptions(out))
    assert load(out) == verdict
    assert verdict.whole
    assert ended(verdict) == ENDS


def test_only_what_is_asked_for_runs(carried: Stack, tmp_path: Path) -> None:
    suite = Counting()
    run(carried, suite, ValidatedSubject(), RunOptions(tmp_path / "v.json", only=("*/o*", "*/far")))
    assert suite.ran == ["kernels/one", "kernels/far"]
    with pytest.raises(StackError, match=r"no case matches \*/nothing"):
        run(carried, suite, ValidatedSubject(), RunOptions(tmp_path / "w.json", only=("*/nothing",)))


def test_a_broken_run_is_not_whole_and_is_resumed_where_it_broke(carried: Stack, tmp_path: Path) -> None:
    out = tmp_path / "v.json"
    with pytest.raises(KeyboardInterrupt):
        run(carried, Counting(until="kernels/two"), ValidatedSubject(), RunOptions(out))
    assert not load(out).whole
    assert ended(load(out)) == {"kernels/one": Outcome.PASSED}
    suite = Counting()
    verdict = run(carried, suite, ValidatedSubject(), RunOptions(out, resume=True))
    assert suite.ran == ["kernels/two", "kernels/far"]
    assert verdict.whole
    assert ended(verdict) == ENDS


def test_finished_cases_are_not_run_again_what_was_not_run_is_tried_again(carried: Stack, tmp_path: Path) -> None:
    run(carried, Counting(), ValidatedSubject(), RunOptions(tmp_path / "v.json"))
    suite = Counting()
    run(carried, suite, ValidatedSubject(), RunOptions(tmp_path / "v.json", resume=True))
    assert suite.ran == ["kernels/far"]
    run(carried, suite := Counting(), ValidatedSubject(), RunOptions(tmp_path / "v.json"))
    assert suite.ran == list(NAMES)


def test_what_is_of_another_stack_machine_or_subject_is_not_resumed_and_not_lost(carried: Stack, tmp_path: Path) -> None:
    out = tmp_path / "v.json"
    run(carried, Counting(), ValidatedSubject(versions={"torch": "2.12.0"}), RunOptions(out))
    before = out.read_bytes()
    other = tmp_path / "other"
    write(other, {**FILES, "stacks/gating/vllm/gate-kernels.patch": patch(line="newer").replace(b"2" * 40, b"3" * 40)})
    same = ValidatedSubject(versions={"torch": "2.12.0"})
    suite = Counting()
    for stack_of, subject, said in (
        (
            carried,
            ValidatedSubject(versions={"torch": "2.13.0"}),
            "it is of torch 2.12.0, here is 2.13.0: remove it to begin anew",
        ),
        (carried, ValidatedSubject(), "it is of torch 2.12.0, here is none"),
        (carried, replace(same, recipe="fast"), "it is of another recipe"),
        (stack.load(other), same, "it is of the stack [0-9a-f]{12}, this one is [0-9a-f]{12}"),
    ):
        with pytest.raises(StackError, match=f"v.json cannot be resumed: {said}"):
            run(stack_of, suite, subject, RunOptions(out, resume=True))
    assert suite.ran == []
    assert out.read_bytes() == before
    kept = load(out)
    image = f"sha256:{kept.stack}"
    for earlier, subject, said in (
        (
            replace(kept, machine=replace(kept.machine, cpu="an old one")),
            same,
            r"a machine with other cpu \(an old one, here .+\)",
        ),
        (replace(kept, image=image, gates={"cpu": kept.stack}), same, "another image"),
        (replace(kept, image=image, gates={"cpu": kept.stack}), replace(same, image=image), "other gates"),
    ):
        out.write_bytes(verdicts.write(earlier))
        with pytest.raises(StackError, match=f"it is of {said}"):
            run(carried, suite, subject, RunOptions(out, resume=True))
    assert suite.ran == []


def test_a_verdict_of_another_day_is_resumed(carried: Stack, tmp_path: Path) -> None:
    gates = {"cpu": digest.of(carried)}
    subject = ValidatedSubject(image=f"sha256:{digest.of(carried)}", gates=gates)
    out = tmp_path / "v.json"
    look_at_earlier(carried, out, subject.image, gates)
    run(carried, Counting(), subject, RunOptions(out))
    look_at_earlier(carried, out, subject.image, MappingProxyType(gates))
    out.write_bytes(verdicts.write(replace(load(out), made="2020-01-01T00:00:00Z")))
    run(carried, suite := Counting(), subject, RunOptions(out, resume=True))
    assert suite.ran == ["kernels/far"]


@pytest.mark.parametrize(
    ("glob", "may"),
    [
        ("kernels/one", True),
        ("kernels/o*", True),
        ("*", True),
        ("*/far", True),
        ("kernels/moe/a/m=1", True),
        ("kernels/m[o]e/*", True),
        ("?ernels/moe/a", True),
        ("kernels/two", False),
        ("kernels/moe", False),
        ("kernels/meo/*", False),
        ("serve/*", False),
    ],
)
def test_what_no_case_can_match_is_found_out_before_the_suite_is_prepared(
    carried: Stack, tmp_path: Path, glob: str, may: bool
) -> None:
    asked = RunOptions(tmp_path / "v.json", only=("nothing", glob))
    with nullcontext() if may else pytest.raises(StackError, match="no case matches nothing "):
        look_ahead(carried, asked, ("kernels/one", "kernels/moe/"))


def test_what_is_resumed_has_its_cases(carried: Stack, tmp_path: Path) -> None:
    out = tmp_path / "v.json"
    run(carried, Counting(), ValidatedSubject(), RunOptions(out))
    look_ahead(carried, RunOptions(out, only=("nothing",), resume=True), NAMES)
    assert ended(run(carried, Counting(), ValidatedSubject(), RunOptions(out, only=("nothing",), resume=True))) == {
        name: how for name, how in ENDS.items() if how is not Outcome.NOT_RUN
    }


def test_a_case_that_comes_twice_is_a_defect(carried: Stack, tmp_path: Path) -> None:
    case = Case("kernels/one", Outcome.PASSED)
    with pytest.raises(StackError, match="kernels/one ran twice"):
        run(carried, lambda job: [case, replace(case)], ValidatedSubject(), RunOptions(tmp_path / "v.json"))


def test_a_place_for_no_file_is_found_out_before_anything_runs(carried: Stack, tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    os.mkfifo(tmp_path / "fifo")
    for out, said in (
        (tmp_path / "a-file/v.json", "no verdict can be written to .*a-file/v.json .*: name another file with --out"),
        (tmp_path / ("n" * 300), "File name too long"),
        (tmp_path / "fifo", "fifo is not a regular file"),
        (tmp_path, "is not a regular file"),
    ):
        suite = Counting()
        with pytest.raises(StackError, match=said):
            run(carried, suite, ValidatedSubject(), RunOptions(out))
        assert suite.ran == []
    assert (tmp_path / "fifo").is_fifo()


def test_a_stack_that_changes_while_it_is_validated_gives_no_whole_verdict(carried: Stack, tmp_path: Path) -> None:
    """The suite ran on one stack, and the verdict would name another."""

    def edits(job: Job) -> Iterator[Case]:
        yield from Counting()(job)
        pins = tmp_path / "pins.toml"
        pins.write_text(pins.read_text().replace("aaaaaaa", "aaaaaab"))

    out = tmp_path / "v.json"
    with pytest.raises(StackError, match="was changed while it was validated"):
        run(carried, edits, ValidatedSubject(), RunOptions(out))
    assert not load(out).whole
    assert load(out).stack == digest.of(carried)


def test_a_comment_that_changes_meanwhile_is_no_other_stack(carried: Stack, tmp_path: Path) -> None:
    def edits(job: Job) -> Iterator[Case]:
        yield from Counting()(job)
        (tmp_path / "pins.toml").write_text("# a comment\n" + (tmp_path / "pins.toml").read_text())

    assert run(carried, edits, ValidatedSubject(), RunOptions(tmp_path / "v.json")).whole
