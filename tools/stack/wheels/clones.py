# SPDX-License-Identifier: Apache-2.0
"""Find the repositories that an upstream's CMake clones while configuring (FetchContent), and test whether they are reachable."""

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
    """A repository at a revision; `instead` is the variable that can name a local folder to use instead."""

    repository: str
    revision: str
    instead: str | None


def of(objects: Objects, tree: TreeId, paths: Sequence[str]) -> tuple[Clone, ...]:
    """Return the clones in the CMake files of a tree; a path is a file, or a folder with a trailing slash."""
    clones = [clone for path in paths for text in _texts(objects, tree, path) for clone in _in(text)]
    return tuple(dict.fromkeys(clones))


def needed(clones: Sequence[Clone], environment: Mapping[str, str] | None = None) -> tuple[Clone, ...]:
    """Return the clones that no environment variable replaces by an existing folder."""
    named = os.environ if environment is None else environment
    return tuple(
        clone for clone in clones if not (clone.instead and clone.instead in named and Path(named[clone.instead]).is_dir())
    )


def unreachable(clones: Sequence[Clone]) -> Clone | None:
    """Return the first repository that git cannot reach, None if all are reachable; each server is tried only once."""
    servers = {clone.repository.rpartition("/")[0].rpartition("/")[0]: clone for clone in reversed(clones)}
    return next((clone for clone in servers.values() if not _answers(clone.repository)), None)


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
    """Yield the clones in one file: a repository, the revision after it, and the variable before it."""
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
    return _VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)
