# SPDX-License-Identifier: Apache-2.0
"""What a served validation needs, made once and kept in the cache: the environment, the server's packages, the model, the tokens.

Each lies in a folder named after what it was made of, and appears there whole.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.proof import environment
from stack.store import cache as places
from stack.validation.model import expected_replies
from stack.validation.python_env import OFFLINE, Installed
from stack.validation.serve import checks, prompts
from stack.validation.serve.numbers import ENDS

_VALIDATION = Path(__file__).parents[1]
_PACKAGES = _VALIDATION.parents[1]
REQUIREMENTS = _VALIDATION / "requirements.txt"
_MODEL = _VALIDATION / "model"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Material:
    """Where things are kept, and the interpreter of the validation's environment."""

    cache: Path
    python: Path
    tell: Tell

    def _folder(self, kind: str, key: str) -> Path:
        return self.cache / "serving" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"

    def installed(self, wheel: Path) -> Installed:
        """A wheel laid before the environment, which stays as it is.

        Raises:
            StackError: it cannot be installed.

        """

        def fill(folder: Path) -> None:
            self.tell(f"installing {wheel.name}")
            command = [str(self.python), "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise StackError(
                    f"{wheel.name} cannot be installed: {environment.first_error(done.stderr)}", "check disk space"
                )

        key = f"{wheel.name} {places.hash_of(wheel)} {self.python}"
        return Installed(self.python, (_made(self._folder("packages", key), fill),))

    def model(self, name: str) -> Path:
        """The folder of a checkpoint (`tiny`, `tiny-mxfp4`).

        Raises:
            StackError: it cannot be written.

        """

        def fill(folder: Path) -> None:
            self.tell(f"writing the model {name}")
            self.ask("write", {"folder": str(folder), "packed": name == "tiny-mxfp4"})

        return _made(self._folder(f"model-{name}", self._code()), fill)

    def tokens(self) -> Mapping[str, Sequence[int]]:
        """The tokens of all texts.

        Raises:
            StackError: they cannot be had.

        """
        found: Mapping[str, Sequence[int]] = self.ask("encode", {"texts": prompts.texts(checks.identifiers())})
        return found

    def reference(self, tokens: Mapping[str, Sequence[int]]) -> Mapping[str, Any]:
        """What transformers says of the model; kept, as it takes a while and never changes.

        Raises:
            StackError: it cannot be computed.

        """
        names = [f"asked {' '.join(prompts.LETTERS)}", "prompt tools", "prompt turns"]
        asked: dict[str, Any] = {"text": tokens["scored"], "prompts": {name: tokens[name] for name in names}, "ends": ENDS}
        asked |= {"longest": checks.LONG, "threads": len(os.sched_getaffinity(0))}

        def fill(folder: Path) -> None:
            self.tell("computing the reference")
            found = self.ask("score", {**asked, "folder": str(self.model("tiny"))})
            (folder / "reference.json").write_text(json.dumps(found))

        folder = _made(self._folder("reference", self._code() + json.dumps(asked)), fill)
        kept: Mapping[str, Any] = json.loads((folder / "reference.json").read_text())
        return kept

    def ask(self, verb: str, asked: Mapping[str, Any]) -> Any:
        """Have `stack.validation.model` do something in the environment.

        Raises:
            StackError: it could not.

        """
        env = {**os.environ, **OFFLINE, "PYTHONPATH": str(_PACKAGES), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(self.python), "-m", "stack.validation.model", verb]
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            said_last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
            raise StackError(f"the validation's model could not {verb}: {said_last}", "check memory and disk space")
        return json.loads(done.stdout)

    def _code(self) -> str:
        """What the model is made by: its modules, and the environment."""
        files = sorted(_MODEL.glob("*.py"))
        return "".join(places.hash_of(path) for path in files) + self.python.parent.parent.name + expected_replies.TEXT


def prepare(cache: Path, tell: Tell) -> Material:
    """The validation's environment; made on the first call.

    Raises:
        StackError: pip could not install something.

    """
    return Material(cache, environment.python(torch(), REQUIREMENTS, cache, tell), tell)


def torch() -> str:
    """The version of torch that the environment has."""
    named = environment.named(REQUIREMENTS)
    assert named is not None
    return named


def _made(folder: Path, fill: Callable[[Path], None]) -> Path:
    """A folder that is filled on the first call, and there only when it is whole."""
    with places.lock(folder):
        if not folder.is_dir():
            part = folder.with_name(f"{folder.name}{places.PART}")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            fill(part)
            part.rename(folder)
    return folder
