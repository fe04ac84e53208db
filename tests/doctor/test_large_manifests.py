# SPDX-License-Identifier: Apache-2.0
"""Small files that stand for much: values that are named again and again, and services that are one another's aliases."""

import pytest

from stack.base.errors import StackError
from stack.doctor import script

LONG = "A " * 60_000
RECIPE = f"recipe_version: '1'\ndefaults:\n  a: '{LONG}'\nmodel: m/x\ncommand: |\n  vllm serve {{model}} {'{a} ' * 20_000}\n"
SWAP = f"models:\n  m:\n    cmd: |\n      vllm serve m/x {'${a} ' * 40_000}\nmacros:\n  a: '{LONG}'\n"
COMPOSE = f"x: &x\n  image: vllm/vllm-openai\n  command: [{', '.join(['--max-model-len', '1'] * 8000)}]\nservices:\n" + "".join(
    f"  s{number}: *x\n" for number in range(2000)
)


@pytest.mark.parametrize(
    ("text", "says"), [(RECIPE, "characters of values"), (SWAP, "characters of values"), (COMPOSE, "2000 services")]
)
def test_they_are_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(StackError, match=says):
        script.parse("serve.yaml", text)
