# SPDX-License-Identifier: Apache-2.0
"""Whether a running server is of the stack that a verdict is about: its version names the stack's digest, if a wheel of ours is in it."""

import re

from stack.model.ids import Sha256
from stack.model.verdict import Case, Outcome

_LABEL = re.compile(r"\+(?:[a-z0-9]+\.)*g([0-9a-f]{8})(?:\.|$)")
"""As `stack build wheels` writes it: `0.32.0+sm121.g14308574`, with `.cpu` after it for a CPU."""


def label(version: str) -> str | None:
    """The eight digits of the stack's digest that a version names; None where it names none."""
    found = _LABEL.search(version)
    return found[1] if found else None


def case(name: str, version: str | None, stack: Sha256) -> Case:
    """The case that says so; not run where the server cannot say."""
    if version is None:
        return Case(name, Outcome.NOT_RUN, "the server does not say its version, so it may be of any stack")
    measured = {"version": version}
    named = label(version)
    if named is None:
        why = f"the server's version {version} names no stack: no wheel of `stack build wheels` is in it"
        return Case(name, Outcome.NOT_RUN, why, measured=measured)
    if not stack.startswith(named):
        return Case(name, Outcome.FAILED, f"the server is of the stack {named}, this one is {stack[:8]}", measured=measured)
    return Case(name, Outcome.PASSED, measured=measured)
