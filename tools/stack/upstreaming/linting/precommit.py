# SPDX-License-Identifier: Apache-2.0
"""An upstream's pre-commit configuration: which tools it runs at which version on which files, and the checks of its own.

pre-commit itself is not used: it fetches every hook's repository from its forge, and a tool of the same version is on the index.
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
"""Which tool a hook runs."""
_RELEASE = re.compile(r"v?([0-9]+(?:\.[0-9]+)+)")
_EVERY = ""
_NONE = "^$"


@dataclass(frozen=True, slots=True)
class Hook:
    """A check: `command` in the tree, for files that match `files`, not `exclude`, and have one of the `types`, if it names some."""

    name: str
    command: tuple[str, ...]
    files: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    types: frozenset[str]
    passes_names: bool
    requires: tuple[str, ...]

    def wants(self, path: str) -> bool:
        """Whether a file is this check's."""
        if not all(one.search(path) for one in self.files) or any(one.search(path) for one in self.exclude):
            return False
        return not self.types or not self.types.isdisjoint(identify.tags_from_filename(path))


@dataclass(frozen=True, slots=True)
class Checks:
    """What an upstream has checked: tools by name with their versions, hooks of theirs by id, and its own.

    `missing` are those of its own that the rules name and the tree does not have.
    """

    versions: Mapping[str, str]
    hooks: Mapping[str, Hook]
    own: tuple[Hook, ...]
    missing: tuple[str, ...] = ()

    def wants(self, hook: str, path: str) -> bool:
        """Whether a tool's hook takes a file; where the tree says nothing of it, it takes all."""
        return hook not in self.hooks or self.hooks[hook].wants(path)


def checks(style: Style, config: bytes | None) -> Checks:
    """What to run; `config` is the tree's pre-commit configuration, None where it has none: then the rules say the versions.

    Raises:
        StackError: it cannot be read.

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
        raise _odd(style.config or "", f"hook {foreign} is no Python script of the tree")
    # A tool that the tree does not name is none of this upstream's, whatever the rules say.
    return Checks(versions, ours, own, tuple(name for name in style.hooks if name not in by_name))


def _read(config: bytes, place: str) -> Mapping[str, Any]:
    try:
        top = yaml.safe_load(config)
    except (yaml.YAMLError, ValueError, RecursionError) as bad:
        raise _odd(place, str(bad)) from bad
    if not isinstance(top, dict) or not isinstance(top.get("repos"), list):
        raise _odd(place, "it lists no repos")
    return top


def _hooks(top: Mapping[str, Any], place: str) -> Iterator[tuple[Hook, str | None]]:
    """Every hook, and the release of its repository."""
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


def _both(hook: Mapping[str, Any], top: Mapping[str, Any], key: str, rest: str) -> tuple[re.Pattern[str], ...]:
    """A pattern of the hook and that for all hooks."""
    return tuple(re.compile(str(one.get(key, rest))) for one in (hook, top))


def is_python(path: str) -> bool:
    """Whether a file is Python."""
    return is_of(path, frozenset({"python", "pyi"}))


def is_of(path: str, kinds: frozenset[str]) -> bool:
    """Whether a file is of some kind, by its name."""
    return not kinds.isdisjoint(identify.tags_from_filename(path))


def _odd(place: str, why: str) -> StackError:
    return StackError(
        f"upstream's {place} cannot be read ({why})"[:300], "name another file as style.config in the rules, or none"
    )
