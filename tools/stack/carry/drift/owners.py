# SPDX-License-Identifier: Apache-2.0
"""Match the environment variables that some installed project plug-in knows the owner of."""

import functools
import re

from stack.projects import known

NAME = r"OWNED[A-Z0-9_]+"
WORD = r"\bOWNED[A-Z0-9_]*[A-Z0-9]\b"
SET = r"(?<![\w])(OWNED[A-Z0-9_]*[A-Z0-9])="
"""In a text, such as a command line."""
SET_IN_FILE = r"(?<![\w$])(?<!\$\{)(OWNED[A-Z0-9_]*[A-Z0-9])(?==|\s*:\s)"
"""In a script, a Dockerfile or the like."""


def pattern(template: str) -> re.Pattern[str]:
    """Compile one of the patterns above; `OWNED` stands for the prefixes that have an owner."""
    return _compiled(template, tuple(owner.prefix for owner in known.owners()))


@functools.lru_cache(maxsize=16)
def _compiled(template: str, prefixes: tuple[str, ...]) -> re.Pattern[str]:
    anything = "|".join(prefixes) or "(?!)"  # Without owners, nothing matches.
    return re.compile(template.replace("OWNED", f"(?:{anything})"))
