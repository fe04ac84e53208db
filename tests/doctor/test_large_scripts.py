# SPDX-License-Identifier: Apache-2.0
"""Small scripts whose variables and lists stand for much."""

import resource
import time
from collections.abc import Iterator

import pytest

from stack.base.errors import StackError
from stack.doctor import script

LISTS = "A=(x y)\n" + 'A+=("${A[@]}")\n' * 40 + 'vllm serve m/x "${A[@]}"\n'
NAMED = f"A=({'x ' * 1000})\nvllm serve m/x " + '"${A[@]}" ' * 4000 + "\n"
REPEATED = f"A=({'x ' * 1000})\n" + 'vllm serve m/x "${A[@]}"\n' * 4000
LONG = f"A={'x' * 1000}\n"
RECIPE = "name: d\nmodel: m/x\ndefaults: {a: b}\ncommand: |\n" + "".join(f"  {line}\n" for line in LISTS.splitlines())


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """A test that fails shall not take the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("serve.sh", LISTS, "stand for more than 100000 words"),
        ("serve.sh", NAMED, "stand for more than 100000 words"),
        ("serve.sh", REPEATED, "stand for more than 100000 words"),
        ("serve.sh", f"{LONG}vllm serve m/x {'$A' * 100_000}\n", "stand for more than 1048576 characters"),
        ("serve.sh", f"{LONG}vllm serve m/x {'$A ' * 100_000}\n", "stand for more than 1048576 characters"),
        ("serve.sh", f'bash -c "{LONG}vllm serve m/x {"$A " * 2000}"\n', "stand for more than 1048576 characters"),
        ("a.service", f"[Service]\nExecStart=sh -c 'B={'x' * 900}; vllm serve {'$B ' * 900}'\n" * 100, "8388608 characters"),
        ("recipe.yaml", RECIPE, "stand for more than 100000 words"),
    ],
)
def test_they_are_refused_in_one_line(name: str, text: str, says: str) -> None:
    assert len(text) < 2**19
    with pytest.raises(StackError, match=says) as refused:
        script.parse(name, text)
    assert "\n" not in str(refused.value)


def test_a_long_list_is_read() -> None:
    served = script.parse("serve.sh", f'A=({"--x 1 " * 500})\nvllm serve m/x "${{A[@]}}"\n').serves[0]
    assert len(served.flags) == 500


@pytest.mark.parametrize(
    "text",
    [
        "A=()\n" + "A+=(x)\n" * 20_000 + 'vllm serve m/x "${A[@]}"\n',
        f"vllm serve m/x {'a ' * 60_000}\n",
        f"{'A=1 ' * 60_000} vllm serve m/x\n",
    ],
)
def test_many_words_take_linear_time(text: str) -> None:
    began = time.process_time()
    assert script.parse("serve.sh", text).serves
    assert time.process_time() - began < 2
