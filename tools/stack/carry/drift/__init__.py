# SPDX-License-Identifier: Apache-2.0
"""Drift: a patch that applies and is wrong all the same, since what it relies on has changed. Found without importing a thing."""

from stack.carry.drift.checks import check, is_readable
from stack.carry.drift.finding import Drift, added_between, added_lines
from stack.carry.drift.settings import Unknown, check_settings

__all__ = ["Drift", "Unknown", "added_between", "added_lines", "check", "check_settings", "is_readable"]
