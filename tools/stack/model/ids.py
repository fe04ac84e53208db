# SPDX-License-Identifier: Apache-2.0
"""Distinct types and patterns for ids and names that are all strings."""

from typing import NewType

UPSTREAM = r"[a-z][a-z0-9-]*"
"""The pattern of an upstream's name."""

LANE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?"
"""The pattern of a lane's name, which is also the name of its folder."""

OBJECT = r"[0-9a-f]{40}"
"""The pattern of a git object's full id."""

CommitId = NewType("CommitId", str)
"""Full hexadecimal id of a commit object in a store."""

TreeId = NewType("TreeId", str)
"""Full hexadecimal id of a git tree object."""

BlobId = NewType("BlobId", str)
"""Full hexadecimal id of a git blob object."""

Sha256 = NewType("Sha256", str)
"""64 lower-case hexadecimal digits."""
PATH = r"(?!/)(?!.*//)(?!.*(^|/)\.\.?(/|$))[^\\\0\n]+(?<!/)"
"""The pattern of a relative path that stays below its folder."""
