# SPDX-License-Identifier: Apache-2.0
import json
import socket
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import checkpoints
from stack.validation import endpoint, texts
from stack.validation.endpoint import Endpoint, Model

from .bench.server import Behaviour, serving


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/"])
def test_addresses_end_in_v1(url: str) -> None:
    assert endpoint.at(url) == Endpoint("http://127.0.0.1:8000/v1")


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "localhost", "ftp://example.org", "http://", "", "http://[::1", "http://127.0.0.1:99999"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(StackError, match="is not the address of a server: write it like"):
        endpoint.at(url)


@pytest.mark.parametrize(
    ("url", "here"),
    [("http://127.0.0.1:1", True), ("http://localhost:1", True), ("http://[::1]:1", True), ("http://192.0.2.1:1", False)],
)
def test_only_this_machine_is_here(url: str, here: bool) -> None:
    assert endpoint.at(url).here is here


def test_an_interface_of_this_machine_is_here() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("192.0.2.1", 9))  # nothing is sent
        own = one.getsockname()[0]
    assert endpoint.at(f"http://{own}:8000").here
    assert not endpoint.at("http://192.0.2.1:8000").here


def test_models_are_listed_and_one_is_chosen(tmp_path: Path) -> None:
    with serving(Behaviour(), str(tmp_path)) as url:
        server = endpoint.at(url)
        assert server.model(None) == server.model("little") == Model("little", str(tmp_path))
        with pytest.raises(StackError, match="serves little: name one of them with --model"):
            server.model("large")
        with pytest.raises(StackError, match=r"/v1/nothing answers|does not answer"):
            server.ask("nothing", {"messages": [], "stream": True, "max_tokens": 1})


def test_a_server_that_is_not_there_is_one_line() -> None:
    with pytest.raises(StackError, match=r"does not answer .*start the server, or correct --url"):
        endpoint.at("http://127.0.0.1:9").models()


def test_a_tokenizer_is_that_of_the_model_or_the_one_given(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    with pytest.raises(StackError, match=r"no tokenizer\.json at"):
        endpoint.tokenizer(Model("little", str(tmp_path)), None)
    file.write_text(json.dumps({}))
    assert endpoint.tokenizer(Model("little", str(tmp_path)), None) == file
    assert endpoint.tokenizer(Model("openai/gpt-oss-120b"), tmp_path) == file


def test_a_published_models_tokenizer_is_that_of_the_hugging_face_cache(tmp_path: Path) -> None:
    revision = checkpoints.load("gpt-oss-120b").revision
    assert revision is not None
    hub = tmp_path / "hub/models--openai--gpt-oss-120b"
    model, environment = Model("served-name", "openai/gpt-oss-120b"), {"HF_HOME": str(tmp_path)}
    with pytest.raises(StackError) as refused:
        endpoint.tokenizer(model, None, environment)
    assert str(refused.value) == (
        f"no tokenizer.json of openai/gpt-oss-120b in {tmp_path}/hub: hf download openai/gpt-oss-120b tokenizer.json, or name the file "
        "with --tokenizer"
    )
    files = {}
    for name in ("0" * 40, "f" * 40, revision):  # any, that of the branch, the recipe's
        files[name] = hub / "snapshots" / name / "tokenizer.json"
        files[name].parent.mkdir(parents=True)
        files[name].write_text(name)
        if name == "f" * 40:
            (hub / "refs").mkdir()
            (hub / "refs/main").write_text(name)
        assert endpoint.tokenizer(model, None, environment) == files[name]
    assert endpoint.tokenizer(model, None, {"HF_HUB_CACHE": str(tmp_path / "hub")}) == files[revision]
    assert endpoint.tokenizer(model, None, {"XDG_CACHE_HOME": str(tmp_path / "x")} | environment) == files[revision]
    with pytest.raises(StackError, match=r"no tokenizer\.json at \.\./\.\./etc"):
        endpoint.tokenizer(Model("x", "../../etc"), None, environment)


def test_the_book_is_always_the_same_and_long() -> None:
    assert texts.book() == texts.book()
    assert len(texts.book().split()) > 100_000


@pytest.mark.parametrize(
    ("version", "read"),
    [("0.32.0+sm121.gaaaaaaaa", "0.32.0+sm121.gaaaaaaaa"), ("\x1b[2J", None), ("", None), ("9" * 200, None)],
)
def test_a_version_is_read_where_it_is_one(version: str, read: str | None) -> None:
    with serving(Behaviour(version=version)) as url:
        assert endpoint.at(url).version() == read


@pytest.mark.parametrize("user", ["someone@", "someone:word@", ":word@"])
def test_a_password_in_an_address_is_refused_and_not_shown(user: str) -> None:
    with pytest.raises(StackError, match="the address of server has a user in it") as refused:
        endpoint.at(f"http://{user}server:8000")
    assert "word" not in str(refused.value)
