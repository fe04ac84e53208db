# SPDX-License-Identifier: Apache-2.0
"""Explain a patch or a conflict: what the patch is for, what upstream did to the same lines and why, and both sides."""

from stack.carry.explaining.explanation import Explanation, Step, of_patch, of_workspace
from stack.carry.explaining.sides import Side, Sides, of_resolution
from stack.carry.explaining.upstream import UpstreamChange

__all__ = ["Explanation", "Side", "Sides", "Step", "UpstreamChange", "of_patch", "of_resolution", "of_workspace"]
