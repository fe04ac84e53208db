# SPDX-License-Identifier: Apache-2.0
"""An index of referrers that somebody else has written: the registry is asked for its digests only."""

import json
from typing import Any

import pytest

from stack.images import referrers
from stack.images.registry_client import Tagged

SUBJECT = "sha256:" + "a" * 64
NONE = [
    "latest",
    "../../../other/manifests/latest",
    "sha256:" + "a" * 63,
    SUBJECT + "/../x",
    SUBJECT + "\n",
    "",
    "md5:" + "a" * 32,
    7,
]
"""Names that are no digests: a tag, whose content would be compared with nothing, or another repository."""


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_digest_is_passed_over(name: Any) -> None:
    def never(*_: Any) -> bytes:
        raise AssertionError(name)

    assert referrers.bundles([{"digest": name, "size": 1}], never, never) == ()


class _Registry:
    """A registry with one index, in which another writer replaces the entry that was seen first."""

    def __init__(self, name: str) -> None:
        self.asked: list[str] = []
        self._indexes = [[{"digest": name}], []]

    def referrers(self, _: str) -> None:
        """Return nothing: it has no such list."""

    def manifest(self, name: str) -> Tagged:
        self.asked.append(name)
        entries = self._indexes[0] if len(self._indexes) == 1 else self._indexes.pop(0)
        return Tagged(json.dumps({"manifests": entries}).encode(), None)


@pytest.mark.parametrize("name", [each for each in NONE if isinstance(each, str)])
def test_what_was_replaced_is_asked_for_by_its_digest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referrers, "SETTLED", 0)
    registry = _Registry(name)
    referrers.enlist(registry, SUBJECT, [])  # type: ignore[arg-type]
    assert {*registry.asked} == {referrers.tag(SUBJECT)}
