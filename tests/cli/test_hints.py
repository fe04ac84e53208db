# SPDX-License-Identifier: Apache-2.0
"""Hints and errors: commands have the name that the user called, and lines fit 60, 80 and 120 columns and a pipe."""

import ast
import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stack.cli import cli, main
from stack.cli.rendering import called, terminal

from ..carry.world import World
from .conftest import Ran
from .test_terminal import on_terminal
from .test_verbs import CONFLICT, REBASE

CALLS: tuple[tuple[object, ...], ...] = (
    ("status",),
    ("status", "--all"),
    ("status", "--json"),
    ("lint",),
    ("pins", "show"),
    ("pins", "verify"),
    ("log",),
    ("undo",),
    ("show", "hook-main"),
    ("diff", "hook-main"),
    ("explain", "hook-main"),
    ("explain", "hook-main", "--onto", "v2.2"),
    ("explain", "hook-main", "--onto", "v2.2", "--json"),
    ("check",),
    ("guard", "list"),
    ("guard", "check"),
    ("guard", "find"),
    ("guard", "drop", "nothing"),
    ("cache", "show"),
    ("cache", "prune", "--dry-run"),
    ("fetch",),
    (*CONFLICT,),
    (*REBASE, "--dry-run"),
    (*CONFLICT, "--workspace", "work"),
    ("explain", "work"),
    ("rebase", "--continue", "work"),
    ("rebase", "--abort", "work"),
    (*REBASE,),
    ("status",),
    ("status", "--json"),
    ("undo",),
    ("log",),
    ("undo", "--list"),
    ("checkout", "gamma", "tree"),
    ("refresh", "gamma", "tree"),
    ("refresh", "gamma", "elsewhere"),
    ("export", "gamma", "--am", "mails"),
    ("export", "gamma", "--quilt", "quilt"),
    ("forecast", "gamma", "--against", "v2.2"),
    ("pins", "set", "gamma", "v2.1"),
    ("pins", "set", "gamma", "v2.1", "--allow-mismatch"),
    ("lint",),
    ("undo",),
    ("lane", "add", "old"),
    ("lane", "list"),
    ("status", "--lane", "nowhere"),
    ("status", "--lane", "nowhere", "--json"),
    ("schema",),
    ("rebase", "gamma", "--onto", "old=v2.1"),
    ("rebase", "gamma", "--onto", "v2.1", "--all-lanes", "--dry-run"),
    ("lane", "drop", "main"),
    ("lane", "drop", "old"),
    ("resolutions", "list"),
    ("resolutions", "show", "0"),
    ("report",),
    ("recipe", "list"),
    ("recipe", "show", "gpt-oss-120b-spark"),
    ("roofline", "gpt-oss-120b-spark", "--steps"),
    ("doctor", "--recipe", "gpt-oss-120b-spark", "-v"),
    ("build", "wheels", "--plan"),
    ("export-pr", "one"),
    ("prove",),
    ("verdict", "show", "nothing.json"),
    ("image", "list", "oci:nothing"),
    ("import", "nothing"),
    ("triage", "--repo", "nothing", "--base", "a", "--onto", "b", "c"),
    ("rebase", "nothing", "--onto", "v2.1"),
    ("nothing",),
    ("rebase", "--nothing"),
    (),
    ("--help",),
    *((*name.split(), "--help") for name in sorted(cli.lazy)),
)
"""Every verb that prints a table or a hint and runs on a small stack, in an order in which each finds something to say."""
ADVISED = re.compile(rf"(?<!spark-)(?<!the )(?<!this )(?<!that )(?<!a )\bstack (?:{'|'.join(sorted(cli.lazy))})\b")
Call = Callable[..., Ran]


@pytest.fixture
def call(world: World, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command under a name, in the folder of the stack."""
    monkeypatch.chdir(world.root)

    def run(name: str, *args: object) -> Ran:
        monkeypatch.setattr(sys, "argv", [name, "--cache", str(world.cache), *map(str, args)])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, out.getvalue(), err.getvalue())

    return run


def test_git_carry_names_itself(call: Call) -> None:
    wrong, advised = [], 0
    for args in CALLS:
        ran = call("/usr/bin/git-carry", *args)
        printed = ran.out + ran.err
        assert "this is a defect" not in printed, args
        advised += printed.count("git carry ")
        if args[:1] != ("diff",):
            wrong += [f"{args}: {line}" for line in printed.splitlines() if ADVISED.search(line) or line.startswith("stack: ")]
    assert "\n".join(wrong) == ""
    assert advised > 80


def test_one_process_may_have_both_names(call: Call) -> None:
    first, second, third = (call(name, "serve", "--help").out for name in ("stack", "git-carry", "stack"))
    assert first == third
    assert "  stack serve gpt-oss" in first
    assert "  git carry serve gpt-oss" in second


def test_what_is_not_advised_stays(call: Call, world: World) -> None:
    """Files and the bytes of patches are the same, whoever wrote them."""
    world.edit(
        "stacks/one/series.toml", 'why = "It is needed."', 'why = "The stack undo is one thing, this stack log another."'
    )
    shown = call("git-carry", "show", "hook-main").out
    assert "The stack undo is one thing, this stack log another." in " ".join(shown.split())
    assert call("git-carry", "diff", "hook-main").out == call("stack", "diff", "hook-main").out
    call("git-carry", *REBASE)
    first = {path: (world.root / path).read_bytes() for path in ("pins.toml", "stacks/one/series.toml")}
    call("git-carry", "undo")
    call("stack", *REBASE)
    assert first == {path: (world.root / path).read_bytes() for path in first}
    items = json.loads(call("git-carry", "status", "--json").out)["waiting"]
    assert [item["command"] for item in items if item["command"]] == ["git carry export-pr"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`stack undo` takes it back", "`git carry undo` takes it back"),
        ("stack rebase gamma --onto v1", "git carry rebase gamma --onto v1"),
        ("begin one: stack init --git URL", "begin one: git carry init --git URL"),
        ("begin a stack there: stack --root DIR init", "begin a stack there: git carry --root DIR init"),
        ('eval "$(stack completion bash)"', 'eval "$(git carry completion bash)"'),
        ("or stack fetch x, then stack lint", "or git carry fetch x, then git carry lint"),
        ("this stack pins vllm, the stack show", "this stack pins vllm, the stack show"),
        ("a stack: stack digests differ", "a stack: stack digests differ"),
    ],
)
def test_a_command_is_told_from_a_stack(monkeypatch: pytest.MonkeyPatch, text: str, shown: str) -> None:
    assert called.renamed(text) == text
    monkeypatch.setattr(sys, "argv", ["git-carry"])
    assert called.renamed(text) == shown


COMMAND = re.compile(r"(stack|git (?:am|carry)|QUILT_PATCHES=\S+|FLASHINFER_\S+|vllm|python) .*|`[^`]*`\W*|.* = .*")
"""A command to copy, or a setting."""


def too_wide(ran: Ran, columns: int | None) -> Iterator[str]:
    """Lines that are wider than they should be; a lone command, path or hash cannot be broken."""
    table = False
    for line in ran.out.splitlines():
        table = (table or line.strip("─-") == "") and line != ""
        alone = " " not in line.strip() or COMMAND.fullmatch(line.strip()) is not None
        if columns is None:
            # In a pipe rows of tables have all that they have; sentences have 80 columns.
            alone = alone or table or ("`stack " not in line and not line.startswith(("next", "then", "nothing")))
        if len(line) > (columns or 80) and not alone:
            yield line


@pytest.mark.parametrize("columns", [60, 80, 120, None])
def test_lines_fit(call: Call, monkeypatch: pytest.MonkeyPatch, columns: int | None) -> None:
    monkeypatch.delenv(terminal.WIDTH, raising=False)
    if columns is not None:
        monkeypatch.setenv(terminal.WIDTH, str(columns))
        monkeypatch.setenv("COLUMNS", str(columns))
    calls = [args for args in CALLS if "--json" not in args and args[:1] not in (("diff",), ("report",), ("explain",))]
    wide = [f"{args}: {line}" for args in calls for line in too_wide(call("stack", *args), columns)]
    assert "\n".join(wide) == ""


@pytest.mark.parametrize("columns", [60, 80])
def test_an_error_is_wrapped_on_a_terminal(tmp_path: Path, columns: int) -> None:
    script = "import sys; sys.argv[0] = 'git-carry'; from stack.cli import main; main()"
    code, printed = on_terminal([sys.executable, "-c", script, "--root", str(tmp_path), "status"], columns)
    assert code == 2
    lines = printed.replace("\r\n", "\n").splitlines()
    assert len(lines) > 1
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)
    assert lines[0].startswith("git carry:")
    assert " ".join(printed.split()).endswith(f"git carry --root {tmp_path} init --git URL")


def printed_directly() -> Iterator[str]:
    """Texts with a command that a module prints without `sentences`, which would rename and wrap them."""
    for file in sorted((Path(__file__).parents[2] / "tools/stack/cli").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("echo", "secho"):
                texts = [
                    each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
                renamed = any(isinstance(each, ast.Attribute) and each.attr == "renamed" for each in ast.walk(node))
                yield from (f"{file.name}:{node.lineno}: {one}" for one in texts if ADVISED.search(one) and not renamed)


def test_no_module_prints_a_command_by_itself() -> None:
    assert [*printed_directly()] == []
