# SPDX-License-Identifier: Apache-2.0
"""The serve suite's cases against a running server: right, lying, with another date, of another stack."""

from datetime import UTC, datetime

import pytest

from stack.base.errors import StackError
from stack.model.verdict import Case, Outcome
from stack.owner.checking import harmony_tokens, serve_cases
from stack.owner.checking.harmony_tokens import Encode
from stack.owner.checking.serve_cases import ServedModel

from ...validation.serve import lying_vllm
from . import right_server

NEEDS = ("sm121",)


def ran(
    lie: lying_vllm.Lie = str, encode: Encode = right_server.encode, stack: str | None = right_server.STACK
) -> dict[str, Case]:
    with right_server.serving(lie) as url:
        server = ServedModel(url, right_server.MODEL, None, stack)
        found = [*serve_cases.run(server, encode, NEEDS, lambda *_: None)]
    assert [case.name for case in found] == [*serve_cases.names()]
    return {case.name.removeprefix("serve/running/"): case for case in found}


def test_a_right_server_passes_all() -> None:
    found = ran()
    assert {case.outcome for case in found.values()} == {Outcome.PASSED}
    assert {case.needs for case in found.values()} == {NEEDS}
    assert found["own-prompts-at-once"].measured["requests"] == serve_cases.REQUESTS


@pytest.mark.parametrize(
    ("old", "new", "failing"),
    [
        ('"prompt_token_ids": [200006', '"prompt_token_ids": [7', "prompt/system-message"),
        ('"completion_tokens": ', '"completion_tokens": 1', "answer/counted"),
        ("chatcmpl-own-7-", "chatcmpl-own-8-", "own-prompts-at-once"),
        ('"finish_reason": "stop"', '"finish_reason": "error"', "answer/counted"),
    ],
)
def test_a_wrong_answer_is_found(old: str, new: str, failing: str) -> None:
    found = ran(lambda text: text.replace(old, new))
    assert found[failing].outcome is Outcome.FAILED
    assert found[failing].why


def test_a_server_puts_its_own_date_into_the_system_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lying_vllm, "DATE", "2026-11-27")
    assert {case.outcome for case in ran().values()} == {Outcome.PASSED}


def test_a_server_that_does_not_show_its_prompts_has_todays_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lying_vllm, "_detokenize", lambda _: [{"none": 1}])
    monkeypatch.setattr(lying_vllm, "DATE", datetime.now(UTC).date().isoformat())
    assert ran()["prompt/system-message"].outcome is Outcome.PASSED
    monkeypatch.setattr(lying_vllm, "DATE", "1999-12-31")
    found = ran()["prompt/system-message"]
    assert found.outcome is Outcome.FAILED
    assert "the prompt differs from token" in found.why


def test_another_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lying_vllm, "_detokenize", lambda _: [{"prompt": "<|im_start|>user"}])
    with pytest.raises(StackError, match="are not in gpt-oss's format"):
        ran()


def test_the_version_names_the_stack() -> None:
    assert ran(stack=None)["version"].outcome is Outcome.NOT_RUN
    assert ran(stack="f" * 64)["version"].outcome is Outcome.FAILED


@pytest.mark.slow
@pytest.mark.images
def test_harmonys_own_library_encodes() -> None:
    from stack.store import cache  # noqa: PLC0415

    encode = harmony_tokens.encoder(cache.root(), print)
    tokens = encode({"one": "<|start|>system<|message|>Current date: 2026-11-27<|end|>"})["one"]
    assert tokens[0] == 200006
    assert tokens[-1] == 200007
