# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas (2020-12) of the documents that commands print with `--json`, and of the files of a stack."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stack.base.did_you_mean import unknown_name

_FOLDER = Path(__file__).parent
_FILES = _FOLDER / "files"
_COMMON = "common"
"""The file with the values that several documents share."""


def names() -> tuple[str, ...]:
    """Name the schemas of documents, in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json") if path.stem != _COMMON))


def files() -> tuple[str, ...]:
    """Name the schemas of files, in alphabetical order: `pins.toml`."""
    return tuple(sorted(path.stem for path in _FILES.glob("*.json")))


def find(name: str) -> str:
    """Return the name of a schema, which may be given as `pins-show`, `pins show`, `stack pins show`, `spark-stack up` or `stack/pins-show/1`.

    Raises:
        StackError: There is no such schema.

    """
    plain = name.strip().removeprefix("stack/").removeprefix("stack ").replace(" --", "-").replace(" ", "-")
    head, _, version = plain.rpartition("/")
    plain = head if version.isdecimal() else plain
    known = (*names(), *files())
    if plain not in known:
        raise unknown_name("schema", name[:100], known, lister="stack schema")
    return plain


def written(name: str) -> dict[str, Any]:
    """Return a schema as its file has it: it refers to other files."""
    return dict(_file(name))


def whole(name: str) -> dict[str, Any]:
    """Return a schema that refers to no other file: everything that it needs is in its `$defs`."""
    parts: dict[str, Any] = {}
    content = {key: value for key, value in _file(name).items() if key != "$defs"}
    made: dict[str, Any] = _inlined(content, f"{name}.json", parts)
    return made | ({"$defs": dict(sorted(parts.items()))} if parts else {})


@cache
def _file(name: str) -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(((_FILES if "." in name else _FOLDER) / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _inlined(value: Any, place: str, parts: dict[str, Any]) -> Any:
    """Copy a part of the file `place`; add whatever it refers to to `parts`, and refer to it there."""
    if isinstance(value, list):
        return [_inlined(item, place, parts) for item in value]
    if not isinstance(value, Mapping):
        return value
    copied = {key: _inlined(item, place, parts) for key, item in value.items() if key != "$ref"}
    if "$ref" not in value:
        return copied
    file, _, pointer = value["$ref"].partition("#/$defs/")
    file = file or place
    key = pointer or file.removesuffix(".json")
    if key not in parts:
        content = _file(file.removesuffix(".json"))
        parts[key] = {}  # a part may refer to itself
        parts[key] = _inlined(_without_head(content["$defs"][pointer] if pointer else content), file, parts)
    return {"$ref": f"#/$defs/{key}"} | copied


def _without_head(content: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: item for key, item in content.items() if key not in ("$schema", "$defs")}


def described(name: str) -> tuple[str | None, str, str]:
    """Return what documents call the schema (None for a file), the command or the file that it describes, and what that holds."""
    content = _file(name)
    if name in files():
        return None, content["title"], content["description"]
    title = content["title"]
    program = "" if title.startswith("spark-stack ") else "stack "
    return content["properties"]["schema"]["const"], f"{program}{title}", content["description"]


def every() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all schemas with their names; see `whole`."""
    for name in (*names(), *files()):
        yield name, whole(name)
