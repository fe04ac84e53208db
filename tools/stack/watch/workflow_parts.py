# SPDX-License-Identifier: Apache-2.0
"""The values that the nightly files of all forges are made of."""

from dataclasses import dataclass

NAME = "stack-watch.yml"
"""The name of the file, by which GitHub and Forgejo list its runs."""
BY_HAND = """\
# It runs by its schedule and by hand only. A pull request never starts it, so no stranger's code runs on your runner or gets the token.
"""
FOR_THIS_FORGE = "For this forge only: an upstream's host that asks for a password must not get the token."
HELPER = """'!f() {{ test "$1" = get && echo username={user} && echo "password=${variable}"; }}; f'"""
"""The setting of git that gives it the token from a variable, without any command line."""


@dataclass(frozen=True, slots=True)
class Nightly:
    """The checked values of a nightly run; `install` are arguments of pip."""

    folder: str
    runner: tuple[str, ...]
    minute: int
    hour: int
    install: str
    image: str | None = None
    prove: bool = False
