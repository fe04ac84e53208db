# SPDX-License-Identifier: Apache-2.0
"""Find drift: patches that apply and are still wrong, since code that they rely on has changed. Nothing is imported."""

from stack.carry.drift.checks import check, is_readable
from stack.carry.drift.finding import Drift, added_between, added_lines
from stack.carry.drift.settings import check_settings, check_use, check_values
from stack.projects import Unknown

__all__ = [
    "Drift",
    "Unknown",
    "added_between",
    "added_lines",
    "check",
    "check_settings",
    "check_use",
    "check_values",
    "is_readable",
]
