# SPDX-License-Identifier: Apache-2.0
"""Every environment variable that the code reads stands in docs/environment.md, and no other does."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
CODE = ROOT / "tools/stack"
GROUPS = tomllib.loads((ROOT / "docs/site/variables.toml").read_text())["group"]
NAMES = {name: group for group in GROUPS for names, _ in group["variables"] for name in names.split(", ")}

CHOSEN = {
    "carry/importing/gather.py": ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"),
    "carry/person.py": ("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
    "cli/rendering/terminal.py": ("FORCE_COLOR", "CLICOLOR_FORCE"),
    "doctor/facts.py": ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"),
    "doctor/machine.py": ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TIKTOKEN_ENCODINGS_BASE", "TIKTOKEN_RS_CACHE_DIR"),
    "store/git.py": ("GIT_SSL*", "GIT_SSH*", "GIT_PROXY*", "GIT_HTTP*", "GIT_ASKPASS", "GIT_ALLOW_PROTOCOL", "GIT_CONFIG*"),
    "store/indexes.py": ("PIP_*",),
    "forge/credentials.py": (
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "GH_ENTERPRISE_TOKEN",
        "GITHUB_ENTERPRISE_TOKEN",
        "GITLAB_TOKEN",
        "FORGEJO_TOKEN",
    ),
    "forge/services.py": (
        "GH_HOST",
        "GITHUB_API_URL",
        "GITLAB_HOST",
        "GITLAB_API_URL",
        "FORGEJO_HOST",
        "FORGEJO_API_URL",
    ),
    "cli/program.py": ("_STACK_COMPLETE",),
    "owner/missing.py": (),  # looks for the key of the API only
    "owner/hub_client.py": (
        "HF_TOKEN",
        "HF_TOKEN_PATH",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
    ),
    "owner/server.py": (),  # all are passed on to the engine
    "proof/environment.py": (),  # all but tokens are passed on to pip
    "cli/serve.py": (),  # compared with the server's variables
    "wheels/building.py": (),  # all that a build depends on, and those of the next line
    "wheels/clones.py": ("*_SRC_DIR",),
    "wheels/compiled.py": (),  # all but some are passed on
    "wheels/native.py": ("NVCC_THREADS", "TORCH_CUDA_ARCH_LIST"),
    "wheels/source.py": ("PATH", "TMPDIR", "LD_LIBRARY_PATH"),
    "images/locking.py": (),  # all but those of uv are passed on
    "proof/pytest_run.py": (),  # what a proof sees of the caller's environment
    "upstreaming/linting/style.py": (),  # all but some are passed on
    "validation/endpoint.py": ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"),
    "validation/python_env.py": (),  # what a server sees of the caller's environment
}
"""Modules that compute which variables they read, or that look at all of them, with the variables that a user would set for that."""
SET_ONLY = (
    "carry/export.py",
    "proof/compiling/listing.py",
    "validation/model/vocabulary.py",
    "vllm_project/jit_units.py",
)
"""Modules that set variables in an environment of their own."""


class Read(NamedTuple):
    """A place that reads a variable; `name` is None if the code computes it."""

    file: str
    line: int
    name: str | None


@functools.cache
def constants() -> dict[str, set[str]]:
    """The texts that names at the top of modules stand for, over all modules."""
    found: dict[str, set[str]] = {}
    for path in CODE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, set()).add(node.value.value)
    return found


LOOKS = {"get", "pop", "setdefault", "items", "keys", "__contains__"}


def is_environment(node: ast.expr) -> bool:
    """Whether an expression is the process's environment, or the copy of one that is called so."""
    text = ast.unparse(node)
    return text == "os.environ" or (
        text.endswith("environment") and not text.startswith(("plan.", "self.", "process.", "draft."))
    )


def looked_up(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """The environment that a node looks into, and what it looks up there."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOKS:
        return node.func.value, node.args[0] if node.args else node.func
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], node.left
    return (node.iter, node.iter) if isinstance(node, ast.comprehension) else None


def handed_on(tree: ast.AST) -> Iterator[ast.expr]:
    """Find where the process's environment gets another name or becomes an argument, other than as that of a child process."""
    for node in ast.walk(tree):
        inside = [
            each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr) and ast.unparse(each) == "os.environ"
        ]
        if isinstance(
            node, ast.Dict | ast.BinOp | ast.AugAssign | ast.Attribute | ast.Subscript | ast.Compare | ast.comprehension
        ):
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            continue
        yield from inside


def reads(text: str, file: str) -> Iterator[Read]:
    """Find where a module looks into an environment."""
    if not re.search("environ|getenv|envvar|complete_var", text):
        return
    tree = ast.parse(text)
    yield from (Read(file, each.lineno, None) for each in handed_on(tree))
    for node in ast.walk(tree):
        found = looked_up(node)
        if found is not None and is_environment(found[0]):
            names = list(named(found[1]))
            computed = [None] if ast.unparse(found[0]) == "os.environ" or file.startswith("doctor/") else []
            yield from (Read(file, found[1].lineno, name) for name in names or computed)
        elif isinstance(node, ast.keyword) and node.arg in ("envvar", "complete_var"):
            yield from (Read(file, node.value.lineno, name) for name in [*named(node.value)] or [None])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "getenv"):
            yield from (Read(file, node.lineno, name) for name in [*named(node.args[0])] or [None])


def named(key: ast.expr) -> Iterator[str]:
    """The names that an expression may stand for; none if the code computes it."""
    values = {str(key.value)} if isinstance(key, ast.Constant) else set()
    if isinstance(key, ast.Name | ast.Attribute):
        values = constants().get(ast.unparse(key).rpartition(".")[2], set())
    yield from (value for value in sorted(values) if re.fullmatch(r"_?[A-Za-z][A-Za-z0-9_]*", value))


READS = [
    read
    for path in sorted(CODE.rglob("*.py"))
    if (file := path.relative_to(CODE).as_posix()) not in SET_ONLY
    for read in reads(path.read_text(), file)
]


def is_named(name: str) -> bool:
    return any(fnmatchcase(name, each) for each in NAMES)


@pytest.mark.parametrize("read", READS, ids=lambda read: f"{read.file}:{read.name}")
def test_each_variable_that_is_read_stands_on_the_page(read: Read) -> None:
    assert is_named(read.name) if read.name is not None else read.file in CHOSEN, read


def test_nothing_else_stands_on_the_page() -> None:
    read = {each.name for each in READS if each.name is not None}.union(*CHOSEN.values())
    docker = "\n".join(path.read_text() for path in (ROOT / "docker").iterdir() if path.is_file())
    code = "\n".join(path.read_text() for path in CODE.rglob("*.py"))
    for name, group in NAMES.items():
        if group.get("docker"):
            assert re.search(rf"\b{name}\b", docker), name
        elif group.get("set"):
            assert f'"{name}"' in code, name
        else:
            assert name in read, name
    assert {each.file for each in READS if each.name is None} == {*CHOSEN}


@pytest.mark.parametrize(
    "line",
    [
        "os.environ.get('STACK_NONE')",
        "os.environ['STACK_NONE']",
        "'STACK_NONE' in os.environ",
        "os.getenv('STACK_NONE')",
        "facts.environment.get('STACK_NONE')",
        "click.option('--x', envvar='STACK_NONE')",
        "os.environ.get(f'STACK_{x}')",
        "[name for name in os.environ if name.startswith('STACK_')]",
        "{name: value for name, value in os.environ.items()}",
        "environment = os.environ",
        "look(os.environ)",
    ],
)
def test_a_new_variable_is_found(line: str) -> None:
    found = list(reads(line, "cli/none.py"))
    assert found
    assert not any(is_named(read.name) if read.name is not None else read.file in CHOSEN for read in found)
