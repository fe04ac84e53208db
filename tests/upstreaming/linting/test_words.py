# SPDX-License-Identifier: Apache-2.0
"""Titles, commits, and what is said of AI assistance: each rule seen to hold and not to."""

import pytest

from stack.carry.person import Person
from stack.upstreaming.linting import words

from .factories import SIGNED, VLLM, patch, proposal, said

ADA = Person("Ada Lovelace", "ada@example.org")
BEN = Person("Ben", "ben@example.org")
BOX = "- [ ] AI assistance was used during the creation of this PR."


@pytest.mark.parametrize("title", ["[Bugfix] Guard it", "[Bugfix][Spec Decode] Guard it", "[CI/Build]  x"])
def test_a_title_in_form(title: str) -> None:
    assert said(words.title(VLLM.title, title)) == []


@pytest.mark.parametrize(
    "title", ["Guard it", "[Bugfix]Guard it", "[Bugfix] ", "[] Guard it", "[Bugfix [x] Guard it", "Bugfix: guard", ""]
)
def test_a_title_out_of_form(title: str) -> None:
    assert ("title", "error", "title") in said(words.title(VLLM.title, title))


def test_an_unknown_tag_shows() -> None:
    assert said(words.title(VLLM.title, "[Bugfix][Blackwell] Guard it")) == [("title", "warning", "title")]


def test_without_a_rule_any_title_will_do() -> None:
    assert said(words.title(None, "Guard it")) == []


@pytest.mark.parametrize("odd", ["\x1b[31m", "\u202e", "\x00", "\u200b"])
def test_a_title_that_steers_a_terminal(odd: str) -> None:
    (found,) = words.title(VLLM.title, f"[Bugfix] Guard {odd}it")
    assert (found.rule, found.blocks) == ("title", True)
    assert found.problem.isprintable()


def test_a_title_that_is_too_long_shows() -> None:
    assert said(words.title(VLLM.title, f"[Bugfix] {'long ' * 30}")) == [("title", "warning", "title")]


def test_signed_off_by_its_author() -> None:
    assert said(words.commits(proposal(), signed_off=True, person=BEN)) == []


def test_not_signed_off_by_its_author() -> None:
    other = proposal(patch(body="Because.\n\nSigned-off-by: Ada Lovelace <ada@other.org>"))
    assert said(words.commits(other, signed_off=True, person=BEN)) == [("sign-off", "error", "Guard it")]
    # Who commits is signed off then.
    assert said(words.commits(other, signed_off=True, person=ADA)) == []
    assert said(words.commits(other, signed_off=False, person=BEN)) == []


def test_nobody_who_could_sign_off() -> None:
    assert said(words.commits(proposal(), signed_off=True, person=None)) == [("sign-off", "error", "Guard it")]
    assert said(words.commits(proposal(), signed_off=False, person=None)) == []


def test_every_commit_is_looked_at() -> None:
    two = proposal(patch(), patch("Another", "Because."))
    assert said(words.commits(two, signed_off=True, person=BEN)) == [("sign-off", "error", "Another")]


def test_a_message_without_a_word_shows() -> None:
    assert said(words.commits(proposal(patch(body=SIGNED)), signed_off=True, person=BEN)) == [
        ("message", "warning", "Guard it")
    ]


def test_a_message_that_steers_a_terminal() -> None:
    found = words.commits(proposal(patch(body=f"Because \x1b[2J.\n\n{SIGNED}")), signed_off=True, person=BEN)
    assert said(found) == [("message", "error", "Guard it")]


ASSISTED = f"Because.\n\nAssisted-by: Some Model\n{SIGNED}"
TOGETHER = f"Because.\n\nCo-authored-by: Ben <ben@example.org>\n{SIGNED}"


@pytest.mark.parametrize(
    ("body", "description", "expected"),
    [
        (ASSISTED, BOX.replace("[ ]", "[x]"), []),
        (ASSISTED, "AI assistance was used for the tests.", []),
        (ASSISTED, BOX, [("assistance", "error", "description")]),
        (ASSISTED, "Nothing is said.", [("assistance", "error", "description")]),
        (f"Because.\n\n{SIGNED}", BOX.replace("[ ]", "[X]"), [("assistance", "error", "Guard it")]),
        (TOGETHER, BOX.replace("[ ]", "[x]"), [("assistance", "error", "Guard it")]),
        (TOGETHER.replace("ben@", "noreply@"), BOX, [("assistance", "error", "description")]),
        (f"Because.\n\n{SIGNED}", BOX, [("assistance", "warning", "description")]),
        (ASSISTED, None, []),
    ],
)
def test_what_is_said_of_assistance(body: str, description: str | None, expected: list[tuple[str, str, str]]) -> None:
    assert said(words.assistance(VLLM.assistance, proposal(patch(body=body)), description)) == expected


def test_where_nobody_asks_for_it() -> None:
    assert said(words.assistance(None, proposal(patch(body=ASSISTED)), BOX)) == []
