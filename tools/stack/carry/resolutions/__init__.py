# SPDX-License-Identifier: Apache-2.0
"""Record how a person resolved conflicts, below `stacks/resolutions/`, and reuse this in later carries by anyone.

A resolution belongs to one conflicting hunk: to the lines of base, upstream and patch, and to the lines around it. If all
hunks of a file are known, with the same lines around them, the resolutions are applied. A resolution of the same hunk with
other lines around it is only offered: it may be wrong there, and a person decides. If code has moved to another file, a person
resolves its conflict there. So the resolution also has the person's changes to files without conflicts.
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
