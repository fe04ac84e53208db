# SPDX-License-Identifier: Apache-2.0
"""With `--json` a command prints exactly one document, and each document has a schema."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from stack.base.errors import StackError
from stack.cli import documents, schemas
from stack.model import stack as stacks

from .. import json_documents
from ..carry.world import World
from .conftest import Ran, Stack, command
from .test_help import SCRIPTS, VERBS

LEAVES = {
    name.removeprefix("stack ").replace(" ", "-"): each
    for name, each in VERBS.items()
    if (not isinstance(each, click.Group) or (each.invoke_without_command and name not in ("stack", "spark-stack")))
    and name not in SCRIPTS
}
WHOLE = dict(schemas.every())
MORE_KEYS = {"result", "patch_facts", "resolution", "recipe", "verdict", "rule", "outcome"}
"""Shared values that others add keys to; each place that uses one closes it."""


@pytest.mark.parametrize("name", LEAVES)
def test_every_verb_has_a_schema(name: str) -> None:
    assert name in schemas.names()


def belongs(name: str) -> str:
    """The verb that a schema belongs to; empty if there is none."""
    return max((each for each in LEAVES if name == each or name.startswith(f"{each}-")), key=len, default="")


@pytest.mark.parametrize("name", sorted({*schemas.names()} - {"error", "validate-stale"}))
def test_every_schema_is_of_a_verb(name: str) -> None:
    """One that is not a verb's first belongs to an option or an argument of it: rebase-abort to rebase."""
    words, *options = schemas.described(name)[1].removeprefix("stack ").split(" --")
    verb = belongs(name)
    assert words.replace(" ", "-").startswith(verb)
    assert {f"--{option}" for option in options} <= {word for each in LEAVES[verb].params for word in each.opts}


@pytest.mark.parametrize("name", schemas.names())
def test_a_schema_is_valid_and_names_its_documents(name: str) -> None:
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    Draft202012Validator.check_schema(WHOLE[name])
    assert WHOLE[name]["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert next(iter(WHOLE[name]["properties"])) == "schema"
    assert WHOLE[name]["properties"]["schema"]["const"] == documents.schema(name)
    assert "schema" in WHOLE[name]["required"]
    assert ".json" not in json.dumps([value for place, value in walk(WHOLE[name]) if place.endswith("$ref")])


ENDS_WELL = {"stack status"}
"""Verbs that pass an exit code on which is always 0."""


@pytest.mark.parametrize("name", LEAVES)
def test_exit_code_1_is_explained(name: str) -> None:
    """A verb that can end with another code than 0 says when, and no other does."""
    callback = LEAVES[name].callback
    assert callback is not None
    ends = f"stack {name}" not in ENDS_WELL and (".exit(" in inspect.getsource(callback) or name.startswith("validate-"))
    said = any("Exit code 1 if " in schemas.described(each)[2] for each in schemas.names() if belongs(each) == name)
    assert said == (ends and name != "validate-pack")


def walk(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    yield place, value
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from walk(each, f"{place}/{key}")


@pytest.mark.parametrize("name", [*schemas.names(), "common"])
def test_every_object_is_closed_and_every_key_is_described(name: str) -> None:
    for place, value in walk(schemas.written(name)):
        if not isinstance(value, Mapping) or not isinstance(value.get("properties"), Mapping):
            continue
        closed = (value.get("additionalProperties"), value.get("unevaluatedProperties"))
        assert False in closed or (name, place.split("/")[-1] in MORE_KEYS) == ("common", True), place
        for key, content in value["properties"].items():
            described = content if "$ref" not in content else {**target(content), **content}
            assert described.get("description"), f"{place}: {key}"


def target(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schemas.written("common")["$defs"][schema["$ref"].rpartition("/")[2]]
    return found


def test_the_check_itself_can_fail() -> None:
    good = {"schema": "stack/rebase-abort/1", "aborted": "folder"}
    assert json_documents.problems(good) == []
    for bad in (
        {"aborted": "folder"},
        {"aborted": "folder", "schema": "stack/rebase-abort/1"},
        {**good, "schema": "stack/none/1"},
        {**good, "schema": "stack/rebase-abort/2"},
        {**good, "aborted": 1},
        {**good, "more": 1},
        {"schema": "stack/rebase-abort/1"},
    ):
        assert json_documents.problems(bad), bad


def error(ran: Ran) -> dict[str, Any]:
    """The error that a command has printed as a document, which says the same as its line on stderr."""
    found = json_documents.check(ran.out)
    assert found.pop("schema") == "stack/error/1"
    return found


@pytest.mark.parametrize(
    ("args", "verb", "problem", "remedy"),
    [
        (("rebase", "gamme", "--onto", "v1"), "rebase", "unknown upstream 'gamme'", "did you mean 'gamma'?"),
        (("pins", "sett", "gamma", "v1"), "pins", "unknown command 'sett'", "did you mean 'set'?"),
        (("--cache", "x", "pins", "set"), "pins set", "Missing argument 'UPSTREAM|base'", "see `stack pins set --help`"),
        (("wheels", "inspect", "none.whl"), "wheel inspect", "none.whl is missing", "check the path"),
        (("nothing",), None, "unknown command 'nothing'", "see `stack --help`"),
        ((), None, "unknown option '--json'", "see `stack --help`"),
        (("status", "pins"), "status", "Got unexpected extra argument (pins)", "see `stack status --help`"),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_is_a_document(stack: Stack, args: tuple[str, ...], verb: str | None, problem: str, remedy: str) -> None:
    ran = stack(*args, "--json")
    assert error(ran) == {"problem": problem, "remedy": remedy, "exit_code": 2, "verb": verb}
    assert (ran.code, ran.err) == (2, f"stack: {problem}: {remedy}\n")
    if args:
        assert (stack(*args).code, stack(*args).out) == (2, "")


def test_a_defect_is_a_document(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "load", lambda *_, **__: {}["none"])
    ran = stack("status", "--json")
    assert (ran.code, error(ran)["problem"]) == (2, "this is a defect, please report it (KeyError: 'none')")
    monkeypatch.setitem(sys.modules, "stack.cli.log", None)  # the module of the command cannot be imported
    assert error(stack("log", "--json"))["verb"] is None


INTERRUPTED = """
import os, signal, sys
from stack.cli import main, status
status.command.callback = lambda **options: os.kill(os.getpid(), signal.SIGTERM)
sys.argv = ["stack", "status", "--json"]
main()
"""


def test_an_interruption_is_a_document() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    found = error(Ran(done.returncode, done.stdout, done.stderr))
    assert (done.returncode, found["exit_code"], found["problem"], found["verb"]) == (143, 143, "interrupted", "status"), done


def test_no_second_document(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that fails after it has printed its document."""
    documents.reset()
    documents.show({"aborted": "folder"}, "rebase-abort")
    documents.show_error(StackError("late", "too late"), 2, "rebase")
    assert json_documents.check(capsys.readouterr().out)["schema"] == "stack/rebase-abort/1"
    documents.reset()
    documents.show_error(StackError("late", "too late"), 2, "rebase")
    assert json_documents.check(capsys.readouterr().out)["schema"] == "stack/error/1"


def test_what_stands_after_two_dashes_is_no_option(stack: Stack) -> None:
    ran = stack("show", "--", "--json")
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_below_stdout(world: World) -> None:
    for args in (("lane", "list"), ("show", "none")):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            done = subprocess.run(command(world, *args, "--json"), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done


def test_git_carry_has_the_same_schemas(world: World) -> None:
    script = "import sys; sys.argv[0] = 'git-carry'; from stack.cli import main; main()"
    args = command(world, "lane", "list", "--json")
    done = subprocess.run([args[0], "-c", script, *args[3:]], capture_output=True, text=True, check=True)
    assert json_documents.check(done.stdout)["schema"] == "stack/lane-list/1"


@pytest.mark.parametrize(
    "name", ["series.toml", "verdict.json", "status", "stack status", "stack/status/1", "rebase --abort", "rebase-abort"]
)
def test_a_schema_is_printed(stack: Stack, name: str) -> None:
    ran = stack("schema", name)
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert found == WHOLE[schemas.find(name)]
    [listed] = json.loads(stack("schema", name, "--json").out)["schemas"]
    assert listed["json_schema"] == found


def test_all_schemas_are_listed(stack: Stack) -> None:
    shown = stack("schema").out
    listed = json_documents.check(stack("schema", "--json").out)["schemas"]
    assert [each["name"] for each in listed] == [*schemas.files(), *schemas.names()]
    assert all(f"\n{each['name']} " in shown for each in listed)
    assert stack("schema", "statsu").refused() == "unknown schema 'statsu': did you mean 'status'?"


def test_without_a_stack(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert stack("schema", "status", root=None).code == 0
