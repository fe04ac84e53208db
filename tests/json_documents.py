# SPDX-License-Identifier: Apache-2.0
"""Check every JSON document that a command prints in a test against its schema, whatever the test itself looks at.

Commands that run in the test's own process are checked where documents are written. Those of other processes are checked by what
reads their output: `tests.cli.conftest.Ran`.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from stack.cli import documents, schemas

_refused: list[str] = []


@functools.cache
def validator(name: str) -> Any:
    """Make the validator of a schema."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - a tenth of a second, and few tests print JSON

    return Draft202012Validator(schemas.whole(name))


def problems(document: Mapping[str, Any]) -> list[str]:
    """Say how a document differs from its schema."""
    key, value = next(iter(document.items()), (None, None))
    if key != "schema" or not isinstance(value, str):
        return [f"the first key is {key!r}, not 'schema'"]
    name = value.split("/")[1]
    if name not in schemas.names():
        return [f"{value} is no schema"]
    return [f"{value}: {error.json_path}: {error.message}" for error in validator(name).iter_errors(document)]


def check(text: str) -> dict[str, Any]:
    """Read the one document that a command has printed, and compare it with its schema."""
    document: dict[str, Any] = json.loads(text)
    assert problems(document) == []
    return document


@pytest.fixture(autouse=True, scope="session")
def watch_documents() -> Iterator[None]:
    """Look at every document that is written in this process."""
    write = documents.as_text

    def watched(made: Mapping[str, object]) -> str:
        text = write(made)
        _refused.extend(problems(json.loads(text)))
        return text

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(documents, "as_text", watched)
        yield


@pytest.fixture(autouse=True)
def no_document_was_refused() -> Iterator[None]:
    """Fail a test in which a document differs from its schema."""
    _refused.clear()
    yield
    assert _refused == []
