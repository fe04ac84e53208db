# SPDX-License-Identifier: Apache-2.0
from stack.validation.verdict_diff import ChangeKind, between

from .factories import SPARK, VERSIONS, failed, not_run, passed, verdict


def test_the_same_differs_in_nothing() -> None:
    one = verdict(passed("a/b", x=1), failed("a/c"))
    found = between(one, one)
    assert (found.subject, found.cases, found.lost) == ({}, (), False)


def test_losses_come_first_and_numbers_last() -> None:
    before = verdict(passed("a/numbers", x=1.0), failed("a/won"), not_run("a/other"), passed("a/gone"), passed("a/lost"))
    after = verdict(passed("a/numbers", x=2.0), passed("a/won"), failed("a/other"), failed("a/lost"), not_run("a/new"))
    found = between(before, after)
    assert [(one.name, one.way) for one in found.cases] == [
        ("a/gone", ChangeKind.LOST),
        ("a/lost", ChangeKind.LOST),
        ("a/won", ChangeKind.WON),
        ("a/other", ChangeKind.OTHER),
        ("a/new", ChangeKind.OTHER),
        ("a/numbers", ChangeKind.NUMBERS),
    ]
    assert list(found.cases[-1].numbers()) == [("x", 1.0, 2.0)]
    assert found.lost
    assert not between(verdict(failed("a/b")), verdict(passed("a/b"))).lost


def test_what_passed_and_was_not_run_again_is_lost() -> None:
    assert between(verdict(passed("a/b")), verdict(not_run("a/b"))).lost


def test_it_says_what_the_verdicts_are_of() -> None:
    found = between(verdict(), verdict(machine=SPARK, versions=VERSIONS | {"torch": "2.14.0", "vllm": "0.32.0"}))
    assert found.subject == {
        "torch": ("2.13.0", "2.14.0"),
        "vllm": ("-", "0.32.0"),
        "gpus": ("-", "NVIDIA GB10 (12.1), driver 590.48.01"),
        "cuda": ("-", "13.1"),
    }
