# SPDX-License-Identifier: Apache-2.0
"""Recognise patches that came out of a stack: the trailers of a working tree name their series and file."""

import re
from dataclasses import replace

from stack.carry import trailers
from stack.carry.importing.candidate import Candidate
from stack.model.series import NAME
from stack.model.stack import RESOLUTIONS


def unmarked(candidate: Candidate) -> Candidate:
    """Move the series and the file that a message's trailers name out of the message."""
    marks = trailers.marks(candidate.message)
    if not marks:
        return candidate
    name = marks.get(trailers.SERIES, "")
    return replace(
        candidate,
        message=trailers.without_trailers(candidate.message, (trailers.SERIES, trailers.PATCH)),
        file=marks.get(trailers.PATCH, candidate.file),
        series=name if re.fullmatch(NAME, name) and name != RESOLUTIONS else "",
    )
