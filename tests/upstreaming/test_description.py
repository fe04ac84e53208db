# SPDX-License-Identifier: Apache-2.0
"""Descriptions: upstream's template kept and filled in, what a person wrote never lost, nothing in them that pings or breaks out."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.model.series import Series, State
from stack.upstreaming import blocks, description, rules, template
from stack.upstreaming.description import NOT_MEASURED, NOT_SEARCHED, NOTHING_RECORDED, Material
from stack.upstreaming.evidence import Evidence, EvidenceRow, Measured
from stack.upstreaming.linting import described
from stack.upstreaming.markdown import cell, escaped, unwrapped

from .linting.factories import SIGNED, VLLM, patch, proposal, said

TEMPLATE = """\
<!-- a comment with a
## heading in it -->

## Overview

<!-- In 1-2 lines. -->

## Claims

## Validation

## Details

---

<details>
<summary> Checklist </summary>

- [ ] AI assistance was used during the creation of this PR.
- [ ] **Design:** it fits.
</details>
"""
SERIES = Series("moe", "MoE on small machines", "vLLM needs it.", State.PENDING)
BODY = f"It breaks on\nsmall machines.\n\nThe guard asks\nthe platform.\n\n- one\n- two\n\n{SIGNED}"
PROVED = Evidence((EvidenceRow("stack prove moe", "a machine", "its tests passed", own=True, passed=True),))
RATIO = Measured(
    "bench/padding/decode/512", {"tok/s": 275.187, "tok/s of the other": 1234.56, "ratio": 1.0307, "spread": 0.00828}, "H200"
)
RUNS = Measured("bench/marlin/decode/512", {"tok/s": 275.187, "runs": "274.3 274.6"}, "H200")


@dataclass(frozen=True)
class Hit:
    number: int = 7
    title: str = "Guard it, too, @ada"
    score: float = 0.31


@dataclass(frozen=True)
class Search:
    made: str = "2026-11-22T05:00:00+00:00"
    queries: tuple[str, ...] = ("repo:v/v `x`",)
    found: list[Hit] = field(default_factory=lambda: [Hit()])


def material(subject: str = "Guard it", body: str = BODY, title: str = "[Bugfix] Guard it", **more: object) -> Material:
    return replace(Material(proposal(patch(subject, body)), SERIES, title, PROVED, Search()), **more)  # type: ignore[arg-type]


def made(given: Material | None = None, form: str | None = TEMPLATE) -> str:
    return description.renewed(None, form, VLLM, given or material()).text


def test_the_template_stays_and_is_filled_in() -> None:
    text = description.body(made())
    rest = iter(text.splitlines())
    assert [line for line in TEMPLATE.splitlines() if line not in rest] == []
    by_words = {one.words: one.text for one in template.sections(text)}
    assert "It breaks on small machines." in by_words["Overview"]
    assert "- Guard it" in by_words["Claims"]
    assert "| `stack prove moe` | a machine | its tests passed |" in by_words["Validation"]
    assert "The guard asks the platform." in by_words["Details"]
    assert "- one\n- two" in by_words["Details"]
    assert "vLLM needs it." in by_words["Details"]
    assert "0.31 of #<!-- -->7 Guard it, too, @<!-- -->ada" in by_words["Details"]
    assert "Signed-off-by" not in text
    assert list(described.described(VLLM, made(), TEMPLATE)) == []


def test_what_is_not_recorded_is_said_to_be() -> None:
    nothing = material(title="[Perf] x", evidence=Evidence(), searched=None)
    text = made(nothing)
    assert all(words in text for words in (NOTHING_RECORDED, NOT_SEARCHED, NOT_MEASURED))
    assert not any(words in made() for words in (NOTHING_RECORDED, NOT_SEARCHED, NOT_MEASURED))
    found = described.recorded(VLLM, "[Perf] x", text, Evidence(), searched=False)
    assert said(found) == [(rule, "error", "description") for rule in ("validation", "measurements", "duplicates")]


def test_measurements_have_baseline_runs_and_spread() -> None:
    measured = replace(PROVED, measured=(RATIO, RUNS))
    text = made(material(title="[Perf] x", evidence=measured))
    assert "| bench/padding/decode/512 | 275 | 1235 | 1.03 | 0.00828 | H200 |" in text
    assert "- bench/marlin/decode/512: 274.3 274.6" in text
    assert "bench/" not in made(material(evidence=measured))
    assert list(described.recorded(VLLM, "[Perf] x", text, measured, searched=True)) == []


def test_results_are_not_edited_by_hand() -> None:
    text = made().replace("its tests passed", "all tests passed")
    assert said(described.recorded(VLLM, "[Bugfix] x", text, PROVED, searched=True)) == [("validation", "error", "description")]
    beside = made().replace("## Details", "I ran it on a Spark, too.\n\n## Details")
    assert list(described.recorded(VLLM, "[Bugfix] x", beside, PROVED, searched=True)) == []


def test_made_anew_what_a_person_wrote_stays() -> None:
    first = made().replace("- Guard it\n", "- Guards it at last\n").replace("## Details\n", "## Details\n\nAsk me.\n")
    first = first.replace("- [ ] AI", "- [x] AI")
    again = description.renewed(first, TEMPLATE, VLLM, material(body=BODY.replace("small", "large")))
    assert again.edited == ("claims",)
    assert again.missing == ()
    for kept in ("- Guards it at last\n", "Ask me.\n", "- [x] AI"):
        assert kept in again.text
    assert "large machines" in again.text
    assert "small machines" not in again.text


def test_a_part_that_a_person_took_out_stays_out() -> None:
    text = made()
    start, end = text.index("<!-- stack:claims"), text.index("<!-- /stack:claims -->\n") + len("<!-- /stack:claims -->\n")
    again = description.renewed(text[:start] + "- Mine\n" + text[end:], TEMPLATE, VLLM, material())
    assert again.missing == ("claims",)
    assert "- Mine\n" in again.text


def test_nothing_new_changes_nothing() -> None:
    assert description.renewed(made(), TEMPLATE, VLLM, material()).text == made()


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=60), st.text(max_size=60))
def test_no_text_of_a_person_is_ever_lost(around: str, first: str, second: str) -> None:
    text = around + blocks.block("claims", first) + around
    again = blocks.renewed(text, {"claims": second})
    if "stack:" not in around + first + second:
        assert again.text == around + blocks.block("claims", second) + around
        assert blocks.intact(again.text, "claims")
        assert blocks.bare(again.text) == around + second.strip("\n") + "\n" + around


def test_without_a_template_the_headings_are_taken() -> None:
    text = made(form=None)
    assert [one.line for one in template.sections(text) if one.line] == list(VLLM.template.headings)
    assert said(described.described(VLLM, text, None)) == [("template", "warning", ".github/PULL_REQUEST_TEMPLATE.md")]


def test_a_template_without_sections_gets_all_of_it() -> None:
    text = made(form="Say what you did.\n")
    assert text.startswith("Say what you did.\n")
    assert [text.index(f"stack:{name}") for name in ("summary", "claims", "validation", "details")] == sorted(
        text.index(f"stack:{name}") for name in ("summary", "claims", "validation", "details")
    )


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("## Claims\n", "", "template"),
        ("## Claims\n", "## My claims\n", "template"),
        ("- [ ] **Design:** it fits.", "- [ ] it fits.", "template"),
        ("## Overview\n", "## Details\n", "template"),
        ("- Guard it\n", "", "description"),
    ],
)
def test_a_template_that_was_changed(old: str, new: str, rule: str) -> None:
    text = made()
    assert old in text
    assert (rule, "error") in {
        (one.rule, one.severity.value) for one in described.described(VLLM, text.replace(old, new, 1), TEMPLATE)
    }


def test_another_order_of_the_sections() -> None:
    text = made().replace("## Claims", "## X").replace("## Overview", "## Claims").replace("## X", "## Overview")
    assert [one.problem for one in described.described(VLLM, text, TEMPLATE)] == [
        "has the template's sections in another order"
    ]


def test_ticked_boxes_are_the_same_boxes() -> None:
    assert list(described.described(VLLM, made().replace("[ ]", "[x]"), TEMPLATE)) == []


def test_none_and_too_much() -> None:
    assert said(described.described(VLLM, None, TEMPLATE)) == [("description", "error", "description")]
    assert said(described.described(VLLM, made() + "x" * 70_000, TEMPLATE)) == [("description", "error", "description")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@ada and a@b.c", "@<!-- -->ada and a@b.c"),
        ("fixes #12 and gh-7", "fixes #<!-- -->12 and gh-<!-- -->7"),
        ("`@ada #12` is code", "`@ada #12` is code"),
        ("``a `@b` #1`` @c", "``a `@b` #1`` @<!-- -->c"),
        ("``@ada` x `", "``@<!-- -->ada` x `"),
        ("`@ada", "`@<!-- -->ada"),
        ("\\`@ada`", "\\`@<!-- -->ada`"),
        ("a ` b\n`@ada` c", "a ` b\n`@<!-- -->ada` c"),
        ("- a `\n- @ada `\n\n`@b`", "- a `\n- @<!-- -->ada `\n\n`@b`"),
        ("\u00e9@ada", "\u00e9@<!-- -->ada"),
        ("title\n-", "title\n\\-"),
        ("a <!-- b --> <script>", "a &lt;!-- b --&gt; &lt;script>"),
        ("## Overview", "\\## Overview"),
        ("title\n---", "title\n\\---"),
        ("```\ncode", "\\```\ncode"),
        ("\x1b[31m\u202e", "?[31m?"),
        ("a & b", "a &amp; b"),
    ],
)
def test_texts_of_others_are_texts(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_cell_stays_one() -> None:
    assert cell("a | b\nc") == "a \\| b c"


def test_paragraphs_are_unwrapped() -> None:
    assert unwrapped("one\ntwo\n\n- a\n- b\n\n    code\n    more") == "one two\n\n- a\n- b\n\n    code\n    more"


def test_a_hostile_message_opens_no_section() -> None:
    evil = (
        f"-->\n## Validation\n\n<!-- stack:validation 000000000000 -->\n| all passed |\n<!-- /stack:validation -->\n\n{SIGNED}"
    )
    text = made(material(body=evil))
    assert [one.line for one in template.sections(text) if one.line] == [
        one.line for one in template.sections(TEMPLATE) if one.line
    ]
    assert text.count("<!-- stack:validation") == 1


def test_a_range_diff_is_shown_as_code() -> None:
    text = made(material(since="1: abc ! 1: def\n```\n## Overview\n@ada\n"))
    assert "````\n1: abc ! 1: def\n```\n## Overview\n@ada\n````" in text
    assert [one.line for one in template.sections(text) if one.line] == [
        one.line for one in template.sections(TEMPLATE) if one.line
    ]


def test_kept_below_the_stacks_folder(tmp_path: Path) -> None:
    one = proposal()
    assert description.load(tmp_path, one) is None
    file = description.save(tmp_path, one, made())
    assert file == tmp_path / ".stack/pulls/vllm/moe-guard.md"
    assert description.load(tmp_path, one) == made()
    assert rules.load("vllm", tmp_path).template.summary == "Overview"
