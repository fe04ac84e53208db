# SPDX-License-Identifier: Apache-2.0
"""Names for the strings that must not be mixed up."""

from typing import NewType

CommitId = NewType("CommitId", str)
"""Full hexadecimal id of a commit object in a store."""

TreeId = NewType("TreeId", str)
"""Full hexadecimal id of a git tree object."""

BlobId = NewType("BlobId", str)
"""Full hexadecimal id of a git blob object."""

Sha256 = NewType("Sha256", str)
"""64 lower-case hexadecimal digits."""
