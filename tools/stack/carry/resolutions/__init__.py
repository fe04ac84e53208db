# SPDX-License-Identifier: Apache-2.0
"""Conflicts that a person resolved once, kept below `stacks/resolutions/` and reused by the next carry, whoever runs it.

A resolution belongs to one conflicting hunk: to what base, upstream and patch have there, and to the lines around it. In a
file where all hunks are known, with the same lines around them, the resolutions are applied. A hunk that is known with other
lines around it is offered: it may mean something else there, and a person has to say.
"""

from stack.carry.resolutions.file import Resolution, dump, shown
from stack.carry.resolutions.known import Applied, Resolutions
from stack.carry.resolutions.recording import NotRecorded, record
from stack.carry.resolutions.shelf import drop, files, standing

__all__ = ["Applied", "NotRecorded", "Resolution", "Resolutions", "drop", "dump", "files", "record", "shown", "standing"]
