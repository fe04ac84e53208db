# SPDX-License-Identifier: Apache-2.0
"""Checks of passed cases, on cases that real machines recorded and on what a forger would write."""

import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from laboratory.target import runner as target_runner
from stack.model import stack, verdict
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome
from stack.validation import definitions, gates
from stack.validation.definitions import Definitions
from stack.validation.numerics import judging
from stack.validation.pack import case_names, recipes
from stack.validation.suite import Job

from .factories import SPARK

ROOT = Path(__file__).parents[2]
KEPT = sorted((ROOT / "validation/verdicts").rglob("*.json"))


@pytest.fixture(scope="module")
def carried() -> Stack:
    return stack.load(ROOT)


@pytest.fixture(scope="module")
def defined(carried: Stack) -> Definitions:
    return definitions.of(carried)


@cache
def kept() -> tuple[Case, ...]:
    """Cases that passed on real machines, with the numbers that they recorded."""
    return tuple(case for file in KEPT for case in verdict.load(file).cases if case.outcome is Outcome.PASSED)


def of_this_stack(case: Case, carried: Stack) -> Case:
    """The same as if it had been recorded of the stack at hand: kept verdicts are of earlier ones."""
    if "version" not in case.measured:
        return case
    label = f"0.32.0+sm121.g{gates.released(carried).stack[:8]}"
    return replace(case, measured={**case.measured, "version": label})


def test_what_real_machines_recorded_is_accepted(defined: Definitions, carried: Stack) -> None:
    judged = [of_this_stack(case, carried) for case in kept() if case.name in defined.named]
    assert len(judged) > 400
    assert {case.name.split("/")[0] for case in judged} == {"kernels", "serve", "bench"}
    assert [(case.name, *defined.problems(case)) for case in judged if [*defined.problems(case)]] == []


def one(part: str, **measured: Any) -> Case:
    """A case that was really recorded, of the newest kernels."""
    case = next(case for case in reversed(kept()) if part in case.name)
    return replace(case, measured={**case.measured, **measured})


MOE, MARLIN, FORMAT, GOAL = "kernels/moe/mxfp4-decode/", "kernels/moe/marlin/", "kernels/formats/", "of-the-copys-bandwidth"
FORGED: Mapping[str, Callable[[], Case]] = {
    "a distance beyond the bar": lambda: one(MOE, rel_l2=0.5),
    "no distance": lambda: replace(one(MOE), measured={}),
    "a distance that is no number": lambda: one(MOE, rel_l2="nan"),
    "a negative distance": lambda: one(MOE, rel_l2=-1.0),
    "a lean beyond its bar": lambda: one(MOE, lean=0.6),
    "another bar": lambda: replace(one(MARLIN), bar=1e9),
    "a lower bar": lambda: replace(one(MARLIN), bar=1e-3),
    "no bar": lambda: replace(one(MARLIN), bar=None),
    "an ideal kernel that is none": lambda: replace(one(MOE, **{"rel_l2 of an ideal kernel": 1.0, "rel_l2": 0.9}), bar=1.05),
    "a margin that was not measured": lambda: replace(one(MARLIN), margins={**one(MARLIN).margins, "good": 9.0}),
    "no margins": lambda: replace(one(MARLIN), margins={}),
    "a bar that rejects nothing": lambda: replace(one(MARLIN), margins={**one(MARLIN).margins, "nearest wrong output": 0.5}),
    "something that differs": lambda: one(FORMAT, differing=1),
    "nothing compared": lambda: replace(one(FORMAT), measured={}),
    "errors": lambda: one("kernels/sanitizer/", errors=3),
    "a goal that was missed": lambda: one(GOAL, found=0.2),
    "a goal with a lower bar": lambda: replace(one(GOAL), bar=0.1),
    "a ratio below its bar": lambda: one("bench/padding/decode/", ratio=0.9),
    "a server of another stack": lambda: one("serve/decode/version", version="0.32.0+sm121.gdeadbeef"),
    "a server of no stack": lambda: one("serve/decode/version", version="0.0.0 (stock, nothing of this stack)"),
    "a bar where there is none": lambda: replace(one("serve/decode/chat"), bar=1e9),
    "needs that another case has": lambda: replace(one(MOE), needs=("cpu",)),
    "no needs": lambda: replace(one(MOE), needs=()),
    "an unknown case": lambda: replace(one(MOE), name="kernels/x0"),
    "an unknown recipe": lambda: replace(one("serve/decode/chat"), name="serve/mine/chat"),
    "an unknown series": lambda: Case("serve/series/none/delivered", Outcome.PASSED),
    "a size without runs": lambda: Case("bench/pp512-tg32", Outcome.PASSED, needs=("sm121",)),
    "a comparison that is worse": lambda: Case(
        "bench/against/x/pp512",
        Outcome.PASSED,
        measured={"ours t/s": 1.0, "theirs t/s": 2.0, "ratio": 0.5, "low": 0.4, "high": 0.6},
        bar=2.0,
    ),
    "a choice as far off as a wrong server": lambda: Case(
        "quality/lm_head-mxfp4",
        Outcome.PASSED,
        measured={"KL": 2.0, "top-1 agreement": 0.9, "top-1 agreement of a wrong server": 0.1},
        bar=1.0,
    ),
    "a server whose answers are off": lambda: Case(
        "serve/cpu-fp32/greedy", Outcome.PASSED, needs=("cpu",), measured={"largest difference": 5.0}, bar=1e9
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_what_contradicts_itself_is_refused(defined: Definitions, carried: Stack, what: str) -> None:
    case = FORGED[what]()
    if not case.name.endswith("/version"):
        case = of_this_stack(case, carried)
    assert [*defined.problems(case)] != []


def test_the_names_of_servers_on_gpus_are_those_that_run(carried: Stack, tmp_path: Path) -> None:
    run = target_runner.Run(tmp_path, tmp_path, carried, Job(), "sm90")
    for recipe in recipes.RECIPES:
        assert case_names.of_recipe(recipe) == tuple(target_runner._cases(run, recipe))


def test_the_bar_for_what_leans_is_the_numerics_own() -> None:
    assert definitions._LEAN == judging.LEAN_BAR


def test_each_gate_wants_only_cases_that_are_defined(defined: Definitions) -> None:
    """A pattern that no case matches could only be met by an invented one."""
    names = [*defined.named, *(f"{start}512-tg32" for start in defined.beginning)]
    for gate in gates.load_all(ROOT / gates.FILE).values():
        for wanted in gate.wanted:
            matching = [
                name for name in names if wanted.takes(loaded(wanted), Case(name, Outcome.PASSED, needs=_needs(wanted)))
            ]
            assert len(matching) >= (1 if wanted.names.startswith(("serve/series", "bench/pp")) else min(wanted.least, 10)), (
                wanted
            )


def _needs(wanted: gates.Wanted) -> tuple[str, ...]:
    return (wanted.needs,) if wanted.needs else ()


def loaded(wanted: gates.Wanted) -> verdict.Verdict:
    weights = wanted.weights[0] if wanted.weights else None
    return verdict.Verdict(Sha256("a" * 64), {}, "2026-11-21T21:40:00Z", SPARK, {}, (), weights=weights)


def test_a_number_that_is_none_is_below_every_bar(defined: Definitions) -> None:
    assert [*defined.problems(one(MARLIN, rel_l2=math.nan))] != []


def test_judging_runs_no_code_of_the_stack(tmp_path: Path) -> None:
    """A judged checkout may hold anything: its laboratory is hashed, and imported only where cases run."""
    root = Path(__file__).parents[2]
    (tmp_path / "laboratory.py").write_text("raise SystemExit('the laboratory was imported')\n")
    program = "import sys; from pathlib import Path; from stack.model.stack import load; from stack.validation import bound, definitions\n"
    program += (
        f"stack = load(Path({str(root)!r})); print(definitions.of(stack).has('kernels/quantizer/mxfp4-emulated/dequantize'))\n"
    )
    program += "print(len(bound.code(stack, 'kernels/moe/mxfp4-decode-emulated/m=1').content) > 10)"
    path = os.pathsep.join((str(tmp_path), str(root / "tools")))
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True\nTrue\n", "")
