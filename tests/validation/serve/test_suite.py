# SPDX-License-Identifier: Apache-2.0
"""The suite's cases: what they are called, how they end, and what cannot run here."""

import datetime
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.deploy import recipes
from stack.deploy.recipes import Bar, Recipe
from stack.model import digest, stack
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome
from stack.proof import series_proofs
from stack.proof.runner import Runner
from stack.proof.series_proofs import ProofState, Result
from stack.validation.model import expected_replies
from stack.validation.python_env import Installed
from stack.validation.serve import checks, fixture_cache, prompts, suite
from stack.validation.suite import Job
from tests.model.factories import FILES, write

from . import lying_vllm

RECIPE = Recipe("tiny", "A tiny model", "tiny", (), {}, (), ("Using X",), Bar("largest", 1e-4))


@pytest.fixture(name="stores")
def _stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    """A stack; tokens and reference are the lying server's own, which are no real model's."""
    write(tmp_path / "stack", FILES)
    known = SimpleNamespace(tokens=encoded, reference=lambda _: lying_vllm.REFERENCE)
    monkeypatch.setattr(fixture_cache, "prepare", lambda *_: known)
    with Stores(stack.load(tmp_path / "stack"), Place(tmp_path / "cache")) as found:
        monkeypatch.setattr(lying_vllm, "VERSION", f"0.32.0+sm121.g{digest.of(found.stack)[:8]}.cpu")
        yield found


def encoded(date: str) -> dict[str, list[int]]:
    return {name: lying_vllm.encode(text) for name, text in prompts.texts(checks.identifiers(), date).items()}


def ran(stores: Stores, plan: suite.ServeOptions, *only: str, lie: lying_vllm.Lie = str) -> dict[str, Case]:
    def wheel(_: object) -> Path:
        raise AssertionError("no server of ours is asked for")

    with lying_vllm.serving(lie) as url:
        found = suite.cases(Job(only), stores, wheel, replace(plan, url=url))
        return {case.name: case for case in found}


def test_a_running_server_is_asked_everything_but_its_log(stores: Stores) -> None:
    found = ran(stores, suite.ServeOptions((RECIPE,)))
    assert found.keys() == {f"serve/tiny/{name}" for name in (checks.CHECKS.keys() | suite.NUMBERS.keys()) - {"backends"}}
    assert {case.outcome for case in found.values()} == {Outcome.PASSED}, [case for case in found.values() if case.why]
    scored = found["serve/tiny/log-probabilities"]
    assert (scored.bar, scored.needs) == (1e-4, ("cpu",))
    assert scored.measured["largest difference"] == 0
    assert scored.margins["nearest fault"] == pytest.approx(10)


def test_of_somebodys_own_server_only_what_holds_for_all_is_asked(stores: Stores) -> None:
    recipe = Recipe("gpt-oss", "A server", recipes.GIVEN, (), {}, ())
    found = ran(stores, suite.ServeOptions((recipe,)))
    assert found.keys() == {f"serve/gpt-oss/{name}" for name in checks.GENERAL}
    assert {(case.outcome, case.needs) for case in found.values()} == {(Outcome.PASSED, ())}


def test_a_servers_own_date_is_taken(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe("gpt-oss", "A server", recipes.GIVEN, (), {}, ())
    monkeypatch.setattr(lying_vllm, "DATE", "2026-11-27")
    found = ran(stores, suite.ServeOptions((recipe,)))
    assert {case.outcome for case in found.values()} == {Outcome.PASSED}, [case for case in found.values() if case.why]


@pytest.mark.parametrize(("date", "outcome"), [("today", Outcome.PASSED), ("2001-01-01", Outcome.FAILED)])
def test_a_server_that_does_not_show_its_prompts_has_todays_date(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, date: str, outcome: Outcome
) -> None:
    recipe = Recipe("gpt-oss", "A server", recipes.GIVEN, (), {}, ())
    monkeypatch.setattr(lying_vllm, "DATE", datetime.date.today().isoformat() if date == "today" else date)
    monkeypatch.setattr(lying_vllm, "_detokenize", lambda _: [{"none": 1}])
    found = ran(stores, suite.ServeOptions((recipe,)), "serve/gpt-oss/prompt/*")
    assert {case.outcome for case in found.values()} == {outcome}


def test_a_server_of_another_model_is_said(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe("gpt-oss", "A server", recipes.GIVEN, (), {}, ())
    monkeypatch.setattr(lying_vllm, "_detokenize", lambda _: [{"prompt": "<|im_start|>user\nhello"}])
    with pytest.raises(StackError, match=r"the prompts of tiny are not in gpt-oss's format: .*name a server of gpt-oss"):
        ran(stores, suite.ServeOptions((recipe,)))


def test_an_answer_of_another_form_fails_its_case_and_the_others_run(stores: Stores) -> None:
    found = ran(
        stores,
        suite.ServeOptions((RECIPE,)),
        lie=lambda text: text.replace(
            f'"content": "{expected_replies.SAID}', f'"content": ["\\ud800"], "x": "{expected_replies.SAID}'
        ),
    )
    assert len(found) == len(checks.CHECKS) - 1 + len(suite.NUMBERS)
    assert found["serve/tiny/models"].outcome is Outcome.PASSED
    assert found["serve/tiny/chat/whole"].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda _: "!503 busy", "no server of an OpenAI API answers at .*: it answers 503: check --url"),
        (lambda _: "hello", "no server of an OpenAI API answers at .*: the answer is not JSON"),
        (lambda _: '{"data": []}', "lists no model: check --url"),
    ],
)
def test_an_address_of_something_else_is_refused(stores: Stores, lie: lying_vllm.Lie, said: str) -> None:
    with pytest.raises(StackError, match=said):
        ran(stores, suite.ServeOptions((RECIPE,)), lie=lie)


def test_a_lie_is_a_failed_case_with_all_that_was_said(stores: Stores) -> None:
    found = ran(stores, suite.ServeOptions((RECIPE,)), lie=lambda text: text.replace("I echo", "You echo"))
    failed = {name for name, case in found.items() if case.outcome is Outcome.FAILED}
    assert "serve/tiny/chat/whole" in failed
    assert "serve/tiny/models" not in failed
    assert "request: POST /v1/chat/completions" in found["serve/tiny/chat/whole"].why


def test_numbers_that_are_off_fail_against_the_bar(stores: Stores) -> None:
    name = "serve/tiny/log-probabilities"
    found = ran(
        stores, suite.ServeOptions((RECIPE,)), name, lie=lambda text: text.replace('"logprob": -1.14', '"logprob": -1.15')
    )
    assert found[name].outcome is Outcome.FAILED
    assert "off by 0.01" in found[name].why
    assert found.keys() == {name}


def test_only_what_is_wanted_runs(stores: Stores) -> None:
    assert ran(stores, suite.ServeOptions((RECIPE,)), "serve/tiny/models").keys() == {"serve/tiny/models"}
    assert not ran(stores, suite.ServeOptions((RECIPE,)), "serve/other/*")


def test_what_the_cpu_lacks_is_not_run(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = replace(RECIPE, flags=("avx1024",))
    found = {case.name: case for case in suite.cases(Job(("serve/tiny/*",)), stores, _no_wheel, suite.ServeOptions((recipe,)))}
    assert found.keys() == {f"serve/tiny/{name}" for name in ("starts", *checks.CHECKS, *suite.NUMBERS)}
    assert {case.outcome for case in found.values()} == {Outcome.NOT_RUN}
    assert {case.why for case in found.values()} == {"the CPU has no avx1024"}
    assert found["serve/tiny/starts"].needs == ("cpu", "avx1024")


def _no_wheel(_: Any) -> Path:
    raise AssertionError("no server can run")


# In place of vLLM's command line: it ends with an error, or serves.
REFUSES = "raise NotImplementedError('No kernel runs on this CPU')"
SERVES = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def without_gating(stores: Stores, folder: Path, monkeypatch: pytest.MonkeyPatch, front_end: str) -> Case:
    """The case that the series `gating` is missed, where a server without it is as given."""
    main = folder / "vllm/entrypoints/cli/main.py"
    main.parent.mkdir(parents=True)
    main.write_text(front_end)
    made = SimpleNamespace(
        tokens=lambda _: lying_vllm.TOKENS,
        installed=lambda _: Installed(Path(sys.executable), (folder,)),
        model=lambda _: folder,
    )
    monkeypatch.setattr(fixture_cache, "prepare", lambda *_: made)
    monkeypatch.setattr(suite, "EFFECT_BY", suite.EFFECT_BY | {"gating": "tiny"})
    monkeypatch.setattr(suite, "REFUSED", {"gating": "No kernel runs on this CPU"})
    stores.stack = replace(stores.stack, series=tuple(replace(one, acts_on=("cpu",)) for one in stores.stack.series))
    built = []

    def wheel(stack: Stack) -> Path:
        built.append([one.name for one in stack.series])
        return folder

    plan = suite.ServeOptions((RECIPE,), ablate=True)
    (case,) = suite.cases(Job(("serve/series/gating/missed",)), stores, wheel, plan)
    assert built == [["cache"]]
    return case


def test_a_series_without_which_the_server_refuses_is_missed(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = without_gating(stores, tmp_path / "packages", monkeypatch, REFUSES)
    assert case.outcome is Outcome.PASSED, case.why
    assert case.measured == {"starts": "No kernel runs on this CPU"}


def test_a_server_that_ends_for_another_reason_proves_nothing(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = without_gating(stores, tmp_path / "packages", monkeypatch, "raise MemoryError('no room')")
    assert case.outcome is Outcome.FAILED
    assert "it cannot be tested without the series" in case.why
    assert "no room" in case.why


def test_a_series_that_nobody_misses_fails(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = without_gating(stores, tmp_path / "packages", monkeypatch, SERVES)
    assert case.outcome is Outcome.FAILED
    assert case.why == "without the series this still holds: starts"


def test_versions_of_what_is_served(stores: Stores) -> None:
    pin = stores.stack.pins.get("vllm")
    assert pin.archive is not None
    assert suite.versions(stores.stack, suite.ServeOptions(())) == {"torch": "2.13.0", "vllm": pin.archive.version}
    assert suite.versions(stores.stack, suite.ServeOptions((), url="http://127.0.0.1:9")) == {}


def test_recipes_of_effects_exist() -> None:
    assert set(suite.EFFECT_BY.values()) <= set(recipes.known())
    assert checks.EFFECTS.keys() <= suite.EFFECT_BY.keys()
    assert set(suite.EFFECT_BY) == checks.EFFECTS.keys() | suite.REFUSED.keys()


class Proofs:
    """In place of the proofs of the real stack, which take minutes: how often they ran, and how they end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran = 0
        self.sound = True
        monkeypatch.setattr(series_proofs, "verdicts", self.verdicts)
        monkeypatch.setattr(series_proofs, "kept", lambda *_: ())

    def verdicts(self, runner: Runner, asked: series_proofs.ProofRequest) -> Iterator[series_proofs.PatchProof]:
        self.ran += 1
        assert asked.series == ("gating",)
        (ref,) = runner.stores.stack.get("gating").patches
        ends = (ProofState.PASSES, ProofState.FAILS) if self.sound else (ProofState.FAILS, ProofState.FAILS)
        yield series_proofs.PatchProof(ref, "tests/test_gating.py", (), *(Result(state, f"it {state}") for state in ends))


def proved(stores: Stores, **how: bool) -> Case:
    (case,) = suite.cases(Job(("serve/series/gating/proved",)), stores, _no_wheel, suite.ServeOptions((), **how))
    return case


@pytest.fixture(name="proof")
def _proof(stores: Stores) -> Path:
    """The proof of the series `gating`."""
    path = stores.stack.root / "tests/test_gating.py"
    path.parent.mkdir()
    path.write_text("def test(): ...\n")
    named = tuple(replace(one, proves=("tests/test_gating.py",)) for one in stores.stack.series if one.name == "gating")
    stores.stack = replace(stores.stack, series=named)
    return path


def test_proofs_that_hold_pass_each_time(stores: Stores, proof: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = Proofs(monkeypatch)
    first, again = proved(stores), proved(stores)
    assert (first.outcome, again.outcome, proofs.ran) == (Outcome.PASSED, Outcome.PASSED, 2)
    assert first.measured == again.measured == {"patches": 1.0, "merged upstream": 0.0}


def test_that_they_do_not_is_said_each_time(stores: Stores, proof: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = Proofs(monkeypatch)
    proofs.sound = False
    assert [proved(stores).outcome for _ in range(2)] == [Outcome.FAILED] * 2
    assert "it fails" in proved(stores).why
    assert proofs.ran == 3


def test_proofs_are_left_out_where_nobody_asks(stores: Stores, proof: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = Proofs(monkeypatch)
    assert "--no-prove" in proved(stores, prove=False).why
    proof.unlink()
    stores.stack = replace(stores.stack, series=tuple(replace(one, proves=()) for one in stores.stack.series))
    assert proved(stores).why == "the series names no proof"
    assert proofs.ran == 0
