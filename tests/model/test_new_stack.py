# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model import new_stack, pins
from stack.model.ids import Sha256, TreeId
from stack.model.pins import Archive, Pin, Within

from .factories import PINS, SHA256, TREE

COMMIT = "b" * 40
PIN = Pin("nginx", "https://example.org/nginx", COMMIT, tag="release-1.27.1")
EVERY = [
    PIN,
    Pin("a", "/srv/a", COMMIT, tags=r"rel/(?P<version>\d+)"),
    Pin("b", "git@h:b", COMMIT, tag="v1", archive=Archive("b", "1", Sha256(SHA256)), tree=TreeId(TREE)),
    Pin("c", "file:///c", COMMIT, tag="v1", archive=Archive("c", "1", None), stated_source="git"),
    Pin("d", "ssh://h/d", COMMIT, within=Within("vllm", "3rd/d")),
]


@pytest.mark.parametrize("pin", EVERY, ids=lambda pin: pin.upstream)
def test_what_is_written_is_read_back(tmp_path: Path, pin: Pin) -> None:
    file = tmp_path / "pins.toml"
    if pin.within is None:
        file.write_text(new_stack.with_pin(None, pin))
        assert list(pins.load(file)) == [pin]
    for text in (PINS, PINS.rstrip("\n"), f"{PINS}\n# A comment at the end.\n"):
        file.write_text(new_stack.with_pin(text, pin))
        assert file.read_text().startswith(text.rstrip("\n"))
        assert pins.load(file).get(pin.upstream) == pin
        assert len(list(pins.load(file))) == 4


def test_the_folder_of_the_history_is_ignored_once() -> None:
    assert new_stack.with_ignored(None) == ".stack/\n"
    assert new_stack.with_ignored("*.o") == "*.o\n.stack/\n"
    for text in (".stack/\n", "*.o\n/.stack\n", ".stack"):
        assert new_stack.with_ignored(text) == text


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://github.com/nginx/nginx", "nginx"),
        ("https://github.com/ggml-org/llama.cpp.git", "llama-cpp"),
        ("git@example.org:me/My_Project.git/", "my-project"),
        ("git@example.org:tool", "tool"),
        ("/home/me/curl/.git", "curl"),
        ("file:///srv/openssh-portable.git", "openssh-portable"),
        ("/srv/7zip", ""),
        ("/srv/base", ""),
        ("/", ""),
    ],
)
def test_the_name_that_an_address_suggests(address: str, name: str) -> None:
    assert new_stack.name_from(address) == name


@pytest.mark.parametrize("name", ["Nginx", "7zip", "-x", "a/b", "a b", "", "base", "a\n"])
def test_names_that_no_upstream_may_have(name: str) -> None:
    with pytest.raises(StackError):
        new_stack.check_name(name)
