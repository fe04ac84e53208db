# SPDX-License-Identifier: Apache-2.0
"""The exception of an uncertain relocation."""


class Doubt(Exception):
    """Raised when it is uncertain where a hunk belongs: the conflict stays."""
