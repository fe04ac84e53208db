# SPDX-License-Identifier: Apache-2.0
"""Settings of older releases and of other servers: what replaces them depends on their values."""

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
