# SPDX-License-Identifier: Apache-2.0
"""Verdicts as one table; the README's is rendered from the kept ones."""

from pathlib import Path

from stack.model.verdict import Case, Outcome, Pinned, Verdict, VerdictFile, Weights, load_file
from stack.validation import verdict_table
from stack.validation.bench.benchy import Measured, Size
from stack.validation.bench.suite import case_name, numbers

from .factories import SPARK, failed, not_run, passed, verdict

ROOT = Path(__file__).parents[2]
SHOWN = ("vLLM 0.32.0 as released", "decode kernels")
BEGIN = "<!-- verdicts: stack verdict table --markdown --speeds --newest --server '{}' --server '{}' -->\n".format(*SHOWN)
END = "<!-- /verdicts -->\n"
PINS = {"vllm": Pinned("5df63a720", "v0.32.0")}


def kept(*verdicts: Verdict) -> list[VerdictFile]:
    return [VerdictFile(Path(f"{place}.json"), b"", each) for place, each in enumerate(verdicts)]


def speed(server: str, context: int, value: float) -> Case:
    return passed(f"bench/{server}/decode/{context}", **{"tok/s": value})


def size(prompt: int, answer: int, decode: float) -> Case:
    runs = (1.0, 1.0, 1.0)
    measured = Measured(Size(prompt, answer, 3), runs, runs, (decode,) * 3, runs, runs, runs, runs)
    return Case(case_name(measured.size), Outcome.PASSED, measured=numbers(measured))


def test_servers_of_the_validation() -> None:
    ratio = passed("bench/decode-kernels/decode/512", **{"ratio": 1.7, "tok/s": 420.0})
    made = verdict(
        speed("upstream", 512, 235.0),
        speed("upstream", 2048, 226.3),
        passed("serve/upstream/chat"),
        not_run("serve/upstream/echoes"),
        speed("decode", 512, 418.5),
        failed("serve/decode/chat"),
        ratio,
        machine=SPARK,
        weights=Weights.DUMMY,
        pins=PINS,
    )
    first, second = verdict_table.rows(kept(made))
    assert (first.server, first.title, dict(first.speeds)) == ("upstream", "vLLM 0.32.0 as released", {512: 235.0, 2048: 226.3})
    assert first.proof == "3 of 3 cases passed; bench, serve; random weights"
    assert (second.title, dict(second.speeds)) == ("decode kernels", {512: 418.5})
    assert second.proof == "1 of 2 cases passed; bench, serve; random weights"
    assert first.machine == "NVIDIA GB10"


def test_a_server_of_an_owner() -> None:
    made = verdict(size(512, 32, 60.0), size(512, 128, 58.0), size(2048, 32, 59.0), machine=SPARK, recipe="gpt-oss-120b-spark")
    (row,) = verdict_table.rows(kept(made))
    assert (row.server, dict(row.speeds)) == ("gpt-oss-120b-spark", {512: 60.0, 2048: 59.0})
    assert row.proof == "3 of 3 cases passed; bench"


def test_a_verdict_without_a_server() -> None:
    made = verdict(passed("kernels/moe/x"), failed("kernels/moe/y"))
    (row,) = verdict_table.rows(kept(made))
    assert (row.server, row.machine, row.proof) == ("", "EPYC", "1 of 2 cases passed; kernels")
    assert not row.speeds


def test_rows_are_in_the_order_of_machines_and_then_the_newest_first() -> None:
    old = verdict(speed("decode", 512, 400.0), machine=SPARK, made="2026-11-21T21:40:00Z")
    new = verdict(speed("decode", 512, 418.0), machine=SPARK, made="2026-11-23T21:40:00Z")
    other = verdict(speed("decode", 512, 30.0), made="2026-11-20T21:40:00Z")
    rows = verdict_table.rows(kept(old, new, other))
    assert [row.speeds[512] for row in rows] == [30.0, 418.0, 400.0]


def test_markdown_has_a_column_for_each_context() -> None:
    made = verdict(speed("decode", 512, 418.54), speed("a|b", 2048, 1.0), machine=SPARK)
    text = verdict_table.markdown(verdict_table.rows(kept(made)))
    assert text.splitlines()[0] == "| machine | server | stack | date | after 512 | after 2048 | what it proves |"
    assert "| 418.5 |  |" in text
    assert "a\\|b" in text
    assert verdict_table.markdown([]).count("\n") == 2


def test_the_readme_has_the_table_of_the_kept_verdicts() -> None:
    """The command in the comment writes it."""
    kept_files = sorted((ROOT / "validation/verdicts").rglob("*.json"))
    rows = [row for row in verdict_table.rows(map(load_file, kept_files)) if row.speeds and row.title in SHOWN]
    assert len(rows) > 4
    rows = verdict_table.newest(rows)
    assert len(rows) == 4
    readme = (ROOT / "README.md").read_text()
    shown = readme.partition(BEGIN)[2].partition(END)[0]
    assert shown == verdict_table.markdown(rows)
    assert "| 418.5 | 391.2 |" in shown
