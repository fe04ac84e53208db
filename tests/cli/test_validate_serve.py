# SPDX-License-Identifier: Apache-2.0
"""`stack validate serve`: what is refused before anything is made."""

import pytest

from .conftest import Stack


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--recipe", "gpu-of-dreams"], "unknown recipe 'gpu-of-dreams': `stack recipe list` lists all "),
        (["--url", "http://127.0.0.1:9"], "no server of an OpenAI API answers at http://127.0.0.1:9"),
        (["--url", "http://127.0.0.1:9", "--weights", "dummy"], "no server of an OpenAI API answers at http://127.0.0.1:9"),
        (
            ["--url", "http://127.0.0.1:9", "--recipe", "cpu-fp32", "--ablate"],
            "--url goes with one --recipe, and without --ablate",
        ),
        (["--url", "http://127.0.0.1:9", "--recipe", "cpu-fp32"], "no server of an OpenAI API answers at http://127.0.0.1:9"),
        (["--recipe", "gpt-oss"], "--recipe gpt-oss asks a server of yours: name it with --url"),
        (["--recipe", "cpu-fp32", "--weights", "real"], "--weights goes with a server of yours"),
        (["--only", "serve/no-such/*"], "no case matches serve/no-such/*"),
    ],
)
def test_refused(stack: Stack, arguments: list[str], said: str) -> None:
    assert stack("validate", "serve", *arguments).refused().startswith(said)
