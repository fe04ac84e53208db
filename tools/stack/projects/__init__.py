# SPDX-License-Identifier: Apache-2.0
"""The plug-in point: what differs from one kind of upstream project to another. docs/plug-ins.md shows how to write one."""

from stack.projects.interface import Owner, Project, Read, Required, Tree, Unfit, UnitScript, Unknown, Use
from stack.projects.wheels import Changes, CompiledBuild, Edits, Needs, PlainBuild, WheelRules

__all__ = [
    "Changes",
    "CompiledBuild",
    "Edits",
    "Needs",
    "Owner",
    "PlainBuild",
    "Project",
    "Read",
    "Required",
    "Tree",
    "Unfit",
    "UnitScript",
    "Unknown",
    "Use",
    "WheelRules",
]
