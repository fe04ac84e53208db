# SPDX-License-Identifier: Apache-2.0
"""Conflicts that a person resolved once, kept below `stacks/resolutions/` and reused by the next carry, whoever runs it.

A resolution belongs to one conflicting hunk: to what base, upstream and patch have there, and to the lines around it. In a
file where all hunks are known, with the same lines around them, the resolutions are applied. A hunk that is known with other
lines around it is offered: it may mean something else there, and a person has to say. Where code has gone to another file, a
person resolves its conflict there: what was changed beside the conflicts belongs to the resolution, too.
"""

from stack.carry.resolutions.companion_changes import Beside, applied, changes
from stack.carry.resolutions.file import Resolution, dump, shown
from stack.carry.resolutions.known import Applied, Resolutions
from stack.carry.resolutions.recording import NotRecorded, record
from stack.carry.resolutions.store import drop, files, keep, standing

__all__ = [
    "Applied",
    "Beside",
    "NotRecorded",
    "Resolution",
    "Resolutions",
    "applied",
    "changes",
    "drop",
    "dump",
    "files",
    "keep",
    "record",
    "shown",
    "standing",
]
