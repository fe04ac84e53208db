# SPDX-License-Identifier: Apache-2.0
"""Encode the prompts of the serve suite with harmony's library, in an environment of its own: a few MB, without torch."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import stack
from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.proof import environment

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_WAIT = 120.0

Tokens = Mapping[str, Sequence[int]]
Encode = Callable[[Mapping[str, str]], Tokens]


def encoder(cache: Path, tell: Progress) -> Encode:
    """Return the function that encodes texts by name; the first call makes its environment.

    Raises:
        StackError: pip could not install harmony's library.

    """
    python = environment.listed(cache, "harmony", _REQUIREMENTS, "installing harmony's library (a few MB)", tell)

    def encode(texts: Mapping[str, str]) -> Tokens:
        packages = str(Path(stack.__file__).parents[1])
        command = [str(python), "-m", "stack.validation.model", "encode"]
        settings = {**os.environ, "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command,
            input=json.dumps({"texts": dict(texts)}),
            capture_output=True,
            text=True,
            check=False,
            env=settings,
            timeout=_WAIT,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise StackError(f"the prompts could not be encoded: {last:.200}", f"remove {python.parents[1]} and try again")
        tokens: Tokens = json.loads(done.stdout)
        return tokens

    return encode
