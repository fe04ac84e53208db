# SPDX-License-Identifier: Apache-2.0
"""What an unknown name is answered with."""

import pytest

from stack.base.did_you_mean import similar, slip, unknown_name

NAMES = ["vllm", "flashinfer", "cutlass", "sm121-gating/vllm/support-xqa-decode"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("vlm", "vllm"), ("VLLM", "vllm"), ("flash", "flashinfer"), ("suport-xqa-decod", NAMES[3]), ("xqa", NAMES[3])],
)
def test_a_slip_is_recognized(typed: str, meant: str) -> None:
    assert similar(typed, NAMES)[0] == meant


def test_nothing_like_it() -> None:
    assert similar("zzz", NAMES) == []
    assert (
        str(unknown_name("upstream", "zzz", NAMES[:2], holder="pins.toml"))
        == "unknown upstream 'zzz': pins.toml has vllm, flashinfer"
    )


def test_the_words() -> None:
    assert str(unknown_name("upstream", "vlm", NAMES)) == "unknown upstream 'vlm': did you mean 'vllm'?"
    many = [f"harmony-{number}" for number in range(20)]
    assert str(unknown_name("series", "harmony", many)).count("harmony-") == 3
    assert str(unknown_name("series", "zz", many, holder="it")).endswith("harmony-15, …")
    assert str(unknown_name("series", "zz", many, holder="it", lister="stack status")).endswith(": `stack status` lists all 20")
    assert str(unknown_name("series", "zz", [], holder="it")) == "unknown series 'zz': there is none in it"


METHODS = [
    "fp8",
    "mxfp4",
    "mxfp8",
    "modelopt",
    "modelopt_fp4",
    "modelopt_mxfp8",
    "gptq",
    "awq",
    "inc",
    "compressed-tensors",
    "pt",
]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("fp-8", "fp8"),
        ("FP_8", "fp8"),
        ("compressed_tensors", "compressed-tensors"),
        ("compressed-tensor", "compressed-tensors"),
        ("modelotp", "modelopt"),
        ("modelept", "modelopt"),
        ("awqq", "awq"),
        ("fp4", None),
        ("modelopt_fp8", None),
        ("gguf", None),
        ("bitsandbytes", None),
        ("p", None),
        ("", None),
    ],
)
def test_what_was_certainly_meant(typed: str, meant: str | None) -> None:
    assert slip(typed, METHODS) == meant
