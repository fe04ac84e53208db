# SPDX-License-Identifier: Apache-2.0
"""The keys that schemas and documentation list, for comparing the JSON that verbs print."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stack.cli import schemas

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"^\| `([^`]+)` \| (.*) \|$", re.MULTILINE)


def named(text: str) -> set[str]:
    """The keys in a description: words in backticks that are no values, paths or commands."""
    return set(re.findall(r"`([a-z_0-9]+)`", text))


def verb(name: str) -> set[str]:
    """All keys of a verb's document by its schema, at every depth, without the name of the schema."""
    return _keys(schemas.whole(schemas.find(name))) - {"schema"}


def top(name: str) -> set[str]:
    """The keys of a verb's document by its schema, without those of values inside and without the name of the schema."""
    return {*schemas.whole(schemas.find(name))["properties"]} - {"schema"}


def _keys(schema: object) -> set[str]:
    if isinstance(schema, Mapping):
        own = set(schema["properties"]) if isinstance(schema.get("properties"), Mapping) else set()
        return own.union(*(_keys(value) for value in schema.values()))
    return set().union(*(_keys(value) for value in schema)) if isinstance(schema, list) else set()


def keys(value: object) -> set[str]:
    """All keys of a value, at every depth, without the name of a document's schema."""
    if isinstance(value, Mapping):
        return {*value, *(key for one in value.values() for key in keys(one))} - {"schema"}
    return {key for one in value for key in keys(one)} if isinstance(value, list) else set()


def schema() -> tuple[dict[str, str], dict[str, str]]:
    """What docs/validate.md says of each key of a verdict, and of each key of a case."""
    _, _, text = (ROOT / "docs/validate.md").read_text().partition("### `verdict.json`, schema 1")
    whole, _, case = text.partition("A case, which is also")
    return dict(TABLE.findall(whole)), dict(TABLE.findall(case))


INSIDE = {"image", "gates"}
"""Only a validation inside an image has them."""


def check_verdict(found: Mapping[str, Any]) -> None:
    """Compare a verdict with its documentation, in both directions."""
    whole, case = schema()
    assert {*found} == whole.keys() - INSIDE
    assert found["cases"]
    for one in found["cases"]:
        assert {*one} == case.keys() - (set() if one["outcome"] != "not-run" else {"inputs"})
        assert one["outcome"] in re.findall(r"`([a-z-]+)`", case["outcome"])
    assert {*found["stack"], *(key for pin in found["stack"]["pins"].values() for key in pin)} == named(whole["stack"])
    gpu = {"name", "capability", "driver"} if not found["machine"]["gpus"] else set()
    assert keys(found["machine"]) | gpu == named(whole["machine"])
    assert found["weights"] in (None, *re.findall(r"`([a-z]+)`", whole["weights"]))
    for one in found.get("inputs", {}).values():
        assert {*one} == named(whole["inputs"]) - {"removed"}
    rest = {name: value for name, value in found.items() if name != "digest"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert found["digest"] == hashlib.sha256(canonical.encode("ascii")).hexdigest()
