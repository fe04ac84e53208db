# SPDX-License-Identifier: Apache-2.0
"""Check that a running server is of a verdict's stack. A server with one of our wheels names the stack's digest in its version."""

import re

from stack.model.ids import Sha256
from stack.model.verdict import Case, Outcome

_LABEL = re.compile(r"\+(?:[a-z0-9]+\.)*g([0-9a-f]{8})(?:\.|$)")
"""Form written by `stack build wheels`: `0.32.0+sm121.g14308574`, with `.cpu` after it for a CPU."""


def label(version: str) -> str | None:
    """Return the eight digits of the stack's digest in a version; None if it contains none."""
    found = _LABEL.search(version)
    return found[1] if found else None


def case(name: str, version: str | None, stack: Sha256) -> Case:
    """Make the case of this check; it was not run if the server does not report its stack."""
    if version is None:
        return Case(name, Outcome.NOT_RUN, "the server does not report its version, so it may be of any stack")
    measured = {"version": version}
    named = label(version)
    if named is None:
        why = f"the server's version {version} names no stack, so it does not run a wheel of `stack build wheels`"
        return Case(name, Outcome.NOT_RUN, why, measured=measured)
    if not stack.startswith(named):
        return Case(name, Outcome.FAILED, f"the server is of the stack {named}, this one is {stack[:8]}", measured=measured)
    return Case(name, Outcome.PASSED, measured=measured)
