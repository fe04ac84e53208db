# SPDX-License-Identifier: Apache-2.0
"""The repositories that an upstream's CMake clones while it is configured (FetchContent), and whether they can be reached."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.model.ids import TreeId
from stack.store.objects import Objects

_SECONDS = 20
_SET = re.compile(r'^\s*set\(\s*(\w+)\s+"?([^"\s)]+)"?', re.MULTILINE)
_WORDS = re.compile(
    r"ENV\{(\w+_SRC_DIR|FETCHCONTENT_SOURCE_DIR_\w+)\}|GIT_REPOSITORY\s+\"?([^\s\")]+)|GIT_TAG\s+\"?([^\s\")]+)"
)
_COMMENT = re.compile(r"#.*$", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Clone:
    """A repository at a revision; `instead`: the variable that names a folder in its place."""

    repository: str
    revision: str
    instead: str | None


def of(objects: Objects, tree: TreeId, paths: Sequence[str]) -> tuple[Clone, ...]:
    """What the CMake files of a tree clone; a path is a file, or a folder with a slash behind."""
    found = [clone for path in paths for text in _texts(objects, tree, path) for clone in _in(text)]
    return tuple(dict.fromkeys(found))


def needed(clones: Sequence[Clone], environment: Mapping[str, str] | None = None) -> tuple[Clone, ...]:
    """Those that no variable of the environment replaces by a folder that is there."""
    named = os.environ if environment is None else environment
    return tuple(one for one in clones if not (one.instead and one.instead in named and Path(named[one.instead]).is_dir()))


def unreachable(clones: Sequence[Clone]) -> Clone | None:
    """The first that git cannot ask for its branches; of one server one is asked."""
    servers = {one.repository.rpartition("/")[0].rpartition("/")[0]: one for one in reversed(clones)}
    return next((one for one in servers.values() if not _answers(one.repository)), None)


def _answers(repository: str) -> bool:
    command = ["git", "ls-remote", "--exit-code", "--", repository, "HEAD"]
    env = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
    try:
        return subprocess.run(command, env=env, capture_output=True, check=False, timeout=_SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _texts(objects: Objects, tree: TreeId, path: str) -> Iterator[str]:
    entry = objects.entry(tree, path.rstrip("/"))
    if entry is None:
        return
    files = objects.entries(entry.id).values() if path.endswith("/") else [entry]
    for file in files:
        yield _COMMENT.sub("", objects.read(file.id).decode("utf-8", "replace"))


def _in(text: str) -> Iterator[Clone]:
    """The clones of one file: a repository, the revision behind it, and the variable before it."""
    values = dict(_SET.findall(text))
    instead: str | None = None
    repository: str | None = None
    for variable, address, revision in _WORDS.findall(text):
        if variable:
            instead = variable
        elif address:
            repository = _value(address, values)
        elif repository is not None:
            yield Clone(repository, _value(revision, values), instead)
            repository = instead = None


def _value(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda one: values.get(one[1], one[0]), text)
