# SPDX-License-Identifier: Apache-2.0
"""What is kept of servers' speeds for the run that resumes another."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laboratory.target import runner as target_runner
from laboratory.target.checks import Speed
from laboratory.target.server import Server
from laboratory.target.speeds import kept
from stack.base.errors import StackError
from stack.model import stack
from stack.model.verdict import Case, Outcome
from stack.validation import machine, suite
from stack.validation.pack.recipes import COMPARISONS, RECIPES, Recipe
from stack.validation.pack.targets import Target

from .test_checks import serving

ROOT = Path(__file__).parents[3]
COMPARED = "bench/decode-kernels/decode/512", "bench/decode-kernels/decode/2048"

OURS, THEIRS = "bench/decode/decode/512", "bench/upstream/decode/512"
RUNS = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=5).map(tuple)


@settings(deadline=None)  # files
@given(st.dictionaries(st.text(max_size=20), RUNS, max_size=4))
def test_what_was_measured_is_there_again(tmp_path_factory: pytest.TempPathFactory, runs: dict[str, tuple[float, ...]]) -> None:
    file = tmp_path_factory.mktemp("kept") / "speeds.json"
    first = kept(file, (), "a")
    for case, one in runs.items():
        first.add(case, Speed(one))
    assert kept(file, runs, "a").measured == {case: Speed(one) for case, one in runs.items()}


def test_a_case_that_is_not_resumed_is_measured_again(tmp_path: Path) -> None:
    kept(tmp_path / "speeds.json", (), "a").add(OURS, Speed((338.5,)))
    later = kept(tmp_path / "speeds.json", {THEIRS}, "a")
    assert later.measured == {}
    later.add(THEIRS, Speed((226.3,)))
    assert set(kept(tmp_path / "speeds.json", {OURS, THEIRS}, "a").measured) == {THEIRS}


def test_speeds_from_before_the_machine_was_started_are_of_another(tmp_path: Path) -> None:
    file = tmp_path / "speeds.json"
    kept(file, (), "a").add(THEIRS, Speed((226.3,)))
    assert kept(file, {THEIRS}, "a").measured == {THEIRS: Speed((226.3,))}
    later = kept(file, {THEIRS}, "b")
    assert later.measured == {}
    later.add(OURS, Speed((338.5,)))
    assert kept(file, {OURS, THEIRS}, "b").measured == {OURS: Speed((338.5,))}


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[" * 10**5,
        "[]",
        '{"machine": "a"}',
        '{"machine": 7, "runs": {}}',
        '{"machine": "a", "runs": {"bench/decode/decode/512": []}}',
        '{"machine": "a", "runs": {"bench/decode/decode/512": [0.0]}}',
        '{"machine": "a", "runs": {"bench/decode/decode/512": [NaN]}}',
        '{"machine": "a", "runs": {"bench/decode/decode/512": ["fast"]}}',
    ],
)
def test_no_record_of_speeds_is_refused(tmp_path: Path, said: str) -> None:
    file = tmp_path / "speeds.json"
    file.write_text(said)
    with pytest.raises(StackError, match=r"speeds\.json"):
        kept(file, {OURS}, "a")
    assert kept(file, (), "a").measured == {}  # nobody resumes


def test_a_machine_is_the_same_until_it_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.started() == machine.started() != ""
    boot = tmp_path / "boot_id"
    boot.write_text("77aa\n")
    monkeypatch.setattr(machine, "_BOOT", boot)
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho GPU-1; echo GPU-2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine.started() == "77aa GPU-1 GPU-2"
    program.unlink()
    boot.unlink()
    assert not machine.started().strip() or machine.started().startswith(" GPU-")


DECODED = "bench/decode/decode/*", "bench/upstream/decode/*", "bench/decode-kernels/*"
"""Two servers' speeds, and what is compared of them."""


def decoded(place: Path, monkeypatch: pytest.MonkeyPatch, *only: str, resume: bool) -> dict[str, Case]:
    """The cases of one run: servers that answer at once, or upstream's a token each two milliseconds."""

    @contextmanager
    def started(_: Path, recipe: Recipe, work: Path, __: float | None, ___: Target) -> Iterator[Server]:
        with serving(pause=0.002 if recipe.name == "upstream" else 0) as port:
            yield Server(port, 1.0, work / "log")

    def cases(job: suite.Job) -> Iterator[Case]:
        run = target_runner.Run(ROOT, place, carried, job, "sm90")
        for recipe in (one for one in RECIPES if one.name in ("upstream", "decode")):
            yield from target_runner._served(run, recipe)
        for comparison in COMPARISONS:
            yield from target_runner._compared(run, comparison)

    monkeypatch.setattr(target_runner.server, "serving", started)
    monkeypatch.setattr(target_runner.importlib.metadata, "version", lambda _: "1")
    carried = stack.load(ROOT)
    asked = suite.RunOptions(place / "verdict.json", only, resume)
    return {case.name: case for case in suite.run(carried, cases, suite.ValidatedSubject(), asked).cases}


def test_a_run_that_is_resumed_compares_its_server_with_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = decoded(tmp_path, monkeypatch, "bench/upstream/decode/*", resume=False)
    assert {case.outcome for case in upstream.values()} == {Outcome.PASSED}
    found = decoded(tmp_path, monkeypatch, *DECODED, resume=True)
    assert [found[name].outcome for name in COMPARED] == [Outcome.PASSED] * 2
    for name, case in upstream.items():
        assert found[name].measured["tok/s"] == case.measured["tok/s"]
        of_other = found[f"bench/decode-kernels/decode/{name.rpartition('/')[2]}"].measured["tok/s of the other"]
        assert of_other == case.measured["tok/s"]


def test_servers_of_two_machines_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded(tmp_path, monkeypatch, "bench/upstream/decode/*", resume=False)
    monkeypatch.setattr(machine, "started", lambda: "another")
    found = decoded(tmp_path, monkeypatch, *DECODED, resume=True)
    assert {found[name].outcome for name in COMPARED} == {Outcome.NOT_RUN}
    assert "without --resume" in found[COMPARED[0]].why
    found = decoded(tmp_path, monkeypatch, *DECODED, resume=False)
    assert {found[name].outcome for name in COMPARED} == {Outcome.PASSED}
