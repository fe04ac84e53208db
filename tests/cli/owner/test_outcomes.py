# SPDX-License-Identifier: Apache-2.0
"""A server's words and its log are shown without control characters, and no command to copy contains them."""

import json
import shlex

import pytest

from stack.cli.owner import outcomes
from stack.owner.state import Image, Model, Setup
from stack.owner.switching import Failure

DIGEST = f"sha256:{'1' * 64}"
SETUP = Setup("recipe", Image("x:1", DIGEST, DIGEST, None), Model("/model"), 8000)


@pytest.mark.parametrize("name", ["maker/model", 'a", "n": 9, "b": "', "\x1b]52;c;aWQ=\x07", "it's $(id)"])
def test_the_request_to_try_is_one_for_any_name(name: str) -> None:
    line = outcomes.request(SETUP, name)
    words = shlex.split(line)
    assert json.loads(words[words.index("-d") + 1]) == {"model": name, "messages": [{"role": "user", "content": "Say hello."}]}
    assert line.isprintable()


def test_a_log_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes._tell_failure(Failure("the server ended", ("kernel \x1b[2Jx was refused",), None))
    assert capsys.readouterr().err.splitlines()[0] == "kernel \\x1b[2Jx was refused"
