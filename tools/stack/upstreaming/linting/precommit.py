# SPDX-License-Identifier: Apache-2.0
"""Read an upstream's pre-commit configuration: its tools with their versions and files, and its own checks.

pre-commit itself is not used: it fetches every hook's repository from a forge, while the index has the same tools and versions.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from identify import identify

from stack.base.errors import StackError
from stack.upstreaming.rules import Style

TOOL = {"ruff-check": "ruff", "ruff": "ruff", "ruff-format": "ruff", "clang-format": "clang-format", "typos": "typos"}
"""The tool that each hook runs."""
_RELEASE = re.compile(r"v?([0-9]+(?:\.[0-9]+)+)")
_EVERY = ""
_NONE = "^$"


@dataclass(frozen=True, slots=True)
class Hook:
    """A check: `command` runs in the tree for files that match all of `files`, none of `exclude`, and one of `types` if there are any."""

    name: str
    command: tuple[str, ...]
    files: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    types: frozenset[str]
    passes_names: bool
    requires: tuple[str, ...]

    def wants(self, path: str) -> bool:
        """Return whether the check applies to a file."""
        if not all(pattern.search(path) for pattern in self.files) or any(pattern.search(path) for pattern in self.exclude):
            return False
        return not self.types or not self.types.isdisjoint(identify.tags_from_filename(path))


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of an upstream: its tools with versions, their hooks by id, and hooks of its own.

    `missing` are own hooks that the rules name but the tree no longer has.
    """

    versions: Mapping[str, str]
    hooks: Mapping[str, Hook]
    own: tuple[Hook, ...]
    missing: tuple[str, ...] = ()

    def wants(self, hook: str, path: str) -> bool:
        """Return whether a tool's hook applies to a file; a hook that the tree does not configure applies to all files."""
        return hook not in self.hooks or self.hooks[hook].wants(path)


def checks(style: Style, config: bytes | None) -> Checks:
    """Determine the checks to run.

    `config` is the tree's pre-commit configuration. If it is None, the versions come from the rules.

    Raises:
        StackError: the configuration cannot be read.

    """
    given = dict(style.versions)
    if config is None:
        return Checks(given, {}, ())
    top = _read(config, style.config or "")
    listed = list(_hooks(top, style.config or ""))
    versions = {tool: version for hook, version in listed if version and (tool := TOOL.get(hook.name))}
    by_name = {hook.name: hook for hook, _ in listed}
    ours = {name: hook for name, hook in by_name.items() if name in TOOL}
    own = tuple(by_name[name] for name in style.hooks if name in by_name)
    foreign = next((hook.name for hook in own if hook.command[:1] not in (("python",), ("python3",))), None)
    if foreign is not None:
        raise _odd(style.config or "", f"hook {foreign} is not a Python script of the tree")
    # A tool that the tree does not configure is not run, even if the rules name a version.
    return Checks(versions, ours, own, tuple(name for name in style.hooks if name not in by_name))


def _read(config: bytes, place: str) -> Mapping[str, Any]:
    try:
        top = yaml.safe_load(config)
    except (yaml.YAMLError, ValueError, RecursionError) as bad:
        raise _odd(place, str(bad)) from bad
    if not isinstance(top, dict) or not isinstance(top.get("repos"), list):
        raise _odd(place, "it has no list of repos")
    return top


def _hooks(top: Mapping[str, Any], place: str) -> Iterator[tuple[Hook, str | None]]:
    """Yield every hook with the release of its repository."""
    for repository in top["repos"]:
        if not isinstance(repository, dict) or not isinstance(repository.get("hooks"), list):
            raise _odd(place, "a repository has no hooks")
        release = _RELEASE.fullmatch(str(repository.get("rev", "")))
        for hook in repository["hooks"]:
            if not isinstance(hook, dict) or not isinstance(hook.get("id"), str):
                raise _odd(place, "a hook has no id")
            yield _hook(hook, top, place), release[1] if release else None


def _hook(hook: Mapping[str, Any], top: Mapping[str, Any], place: str) -> Hook:
    name = hook["id"]
    try:
        files, exclude = (_both(hook, top, key, rest) for key, rest in (("files", _EVERY), ("exclude", _NONE)))
        command = tuple(shlex.split(str(hook.get("entry", "")))) + tuple(map(str, hook.get("args", ())))
    except (re.error, ValueError, TypeError) as bad:
        raise _odd(place, f"hook {name}: {bad}") from bad
    types = [*hook.get("types", ()), *hook.get("types_or", ())]
    return Hook(
        name=name,
        command=command,
        files=files,
        exclude=exclude,
        types=frozenset(map(str, types)),
        passes_names=hook.get("pass_filenames", True) is True,
        requires=tuple(map(str, hook.get("additional_dependencies", ()))),
    )


def _both(hook: Mapping[str, Any], top: Mapping[str, Any], key: str, default: str) -> tuple[re.Pattern[str], ...]:
    """Compile a hook's pattern and the pattern for all hooks."""
    return tuple(re.compile(str(table.get(key, default))) for table in (hook, top))


def is_python(path: str) -> bool:
    """Return whether a file's name is one of a Python file."""
    return is_of(path, frozenset({"python", "pyi"}))


def is_of(path: str, kinds: frozenset[str]) -> bool:
    """Return whether a file's name belongs to one of some kinds."""
    return not kinds.isdisjoint(identify.tags_from_filename(path))


def _odd(place: str, why: str) -> StackError:
    return StackError(
        f"upstream's {place} cannot be read ({why})"[:300], "name another file as style.config in the rules, or leave it out"
    )
