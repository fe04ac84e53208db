# SPDX-License-Identifier: Apache-2.0
"""Settings of the early forks, told by name."""

import pytest

from stack.deploy import removed_settings


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("--mxfp4-backend", "--mxfp4-backend"),
        ("--mxfp4_layers=moe,qkv", "--mxfp4-layers"),
        ("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8"),
        ("VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", "VLLM_USE_FLASHINFER_MOE_MXFP4_*"),
        ("VLLM_USE_FLASHINFER_MOE_FP4=1", "VLLM_USE_FLASHINFER_MOE_FP*"),
        ("--moe-backend", None),
        ("VLLM_USE_FLASHINFER_MOE_INT4", None),
        ("VLLM_MXFP4_BACKEND_X", None),
    ],
)
def test_found_by_name(setting: str, name: str | None) -> None:
    found = removed_settings.find(setting)
    assert (found.name if found else None) == name


def test_what_is_said() -> None:
    said = str(removed_settings.find("VLLM_MXFP4_USE_MARLIN"))
    assert said == "gone since vLLM 0.24.0; use --moe-backend=marlin or --linear-backend=marlin"
    assert str(removed_settings.find("--mxfp4-backend")).startswith("never vLLM's own; use --moe-backend=marlin or ")


def test_each_says_what_does_the_same() -> None:
    for one in removed_settings.known():
        assert one.by
        assert all(argument.startswith("--") and "=" in argument for argument in one.by)


def test_values_are_quoted_for_a_shell() -> None:
    assert removed_settings.for_shell("--moe-backend=marlin") == "--moe-backend=marlin"
    assert removed_settings.for_shell('--a-config={"linear":"mxfp4"}') == """--a-config='{"linear":"mxfp4"}'"""
    assert removed_settings.for_shell("--enforce-eager") == "--enforce-eager"
