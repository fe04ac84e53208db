# SPDX-License-Identifier: Apache-2.0
"""Recognise patches that came out of a stack: the trailers of a working tree name their series and file."""

import re
from dataclasses import replace

from stack.carry import worktree
from stack.carry.importing.candidate import Candidate
from stack.model.series import NAME
from stack.model.stack import RESOLUTIONS


def unmarked(candidate: Candidate) -> Candidate:
    """Move the series and the file that a message's trailers name out of the message."""
    marks = worktree.marks(candidate.message)
    if not marks:
        return candidate
    name = marks.get(worktree.SERIES, "")
    return replace(
        candidate,
        message=worktree.without_trailers(candidate.message, (worktree.SERIES, worktree.PATCH)),
        file=marks.get(worktree.PATCH, candidate.file),
        series=name if re.fullmatch(NAME, name) and name != RESOLUTIONS else "",
    )
