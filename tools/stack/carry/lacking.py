# SPDX-License-Identifier: Apache-2.0
"""Say what to do if a patch changes a file that a source archive lacks: it often leaves out tests and documentation."""

from stack.carry.apply import Misfit
from stack.model.pins import Source


def explained(misfit: Misfit, source: Source) -> str:
    """Return why a patch does not apply to sources that come from an archive or from git."""
    if source != "archive" or not misfit.is_absent:
        return str(misfit)
    return (
        f'{misfit.path}: the source archive lacks it; the git remote may have it: source = "git" in pins.toml, or --source git'
    )
