# SPDX-License-Identifier: Apache-2.0
"""Settings of older releases and of other servers: what replaces them depends on their values."""

import shlex

import pytest

from stack.deploy import older_settings


def test_each_entry_is_of_a_release_or_never_was_and_names_settings() -> None:
    for entry in older_settings.known():
        assert entry.by or entry.note or entry.gone_by, entry.name
        assert all(argument.startswith(("--", "VLLM_", "FLASHINFER_")) for argument in entry.by), entry.name


@pytest.mark.parametrize(
    ("name", "value", "by"),
    [
        ("--cuda-graph-sizes", "1 2 4", "--cudagraph-capture-sizes"),
        ("--guided-decoding-backend", "xgrammar", '--structured-outputs-config={"backend":"xgrammar"}'),
        ("--guided_decoding_backend", "xgrammar", '--structured-outputs-config={"backend":"xgrammar"}'),
    ],
)
def test_its_value_goes_into_what_replaces_it(name: str, value: str, by: str) -> None:
    found = older_settings.find(name, value)
    assert found is not None
    assert found.by[0] == by


def test_what_is_not_known_is_not_replaced() -> None:
    assert older_settings.find("--max-model-len", "1") is None
    assert older_settings.find("VLLM_LOGGING_LEVEL", "DEBUG") is None


def test_what_replaces_it_can_be_pasted_into_a_shell() -> None:
    found = older_settings.find("--guided-decoding-backend", "xgrammar")
    assert found is not None
    assert found.advice == """use --structured-outputs-config='{"backend":"xgrammar"}'"""
    for entry in older_settings.known():
        advice = getattr(older_settings.find(entry.name.replace("*", "X"), "it's $(odd) `x`"), "advice", "").partition(" (")[0]
        words = shlex.split(advice.removeprefix("use ")) if advice.startswith("use --") else []
        assert all(word == "or" or word.startswith("--") or word in ("and", "with") for word in words), advice
