# SPDX-License-Identifier: Apache-2.0
"""Build and cache the fixtures of a served validation: environment, server packages, model, tokens.

Each is in a folder named after a hash of its inputs, which appears when it is complete.
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
from stack.base.progress import Progress
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


@dataclass(frozen=True, slots=True)
class Material:
    """The cache folder, and the interpreter of the validation's environment."""

    cache: Path
    python: Path
    tell: Progress

    def _folder(self, kind: str, key: str) -> Path:
        return self.cache / "serving" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"

    def installed(self, wheel: Path) -> Installed:
        """Install a wheel in a folder of its own that precedes the environment, which stays unchanged.

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
        """Return the folder of a checkpoint (`tiny`, `tiny-mxfp4`), which the first call writes.

        Raises:
            StackError: it cannot be written.

        """

        def fill(folder: Path) -> None:
            self.tell(f"writing the model {name}")
            self.ask("write", {"folder": str(folder), "packed": name == "tiny-mxfp4"})

        return _made(self._folder(f"model-{name}", self._code()), fill)

    def tokens(self, date: str = prompts.DATE) -> Mapping[str, Sequence[int]]:
        """Encode all texts to tokens, with that date in the system message.

        Raises:
            StackError: the encoder failed.

        """
        tokens: Mapping[str, Sequence[int]] = self.ask("encode", {"texts": prompts.texts(checks.identifiers(), date)})
        return tokens

    def reference(self, tokens: Mapping[str, Sequence[int]]) -> Mapping[str, Any]:
        """Compute the model's outputs with transformers; kept, because it takes long and never changes.

        Raises:
            StackError: it failed.

        """
        names = [f"asked {' '.join(prompts.LETTERS)}", "prompt tools", "prompt turns"]
        request: dict[str, Any] = {"text": tokens["scored"], "prompts": {name: tokens[name] for name in names}, "ends": ENDS}
        request |= {"longest": checks.LONG, "threads": len(os.sched_getaffinity(0))}

        def fill(folder: Path) -> None:
            self.tell("computing the reference")
            scores = self.ask("score", {**request, "folder": str(self.model("tiny"))})
            (folder / "reference.json").write_text(json.dumps(scores))

        folder = _made(self._folder("reference", self._code() + json.dumps(request)), fill)
        kept: Mapping[str, Any] = json.loads((folder / "reference.json").read_text())
        return kept

    def ask(self, verb: str, request: Mapping[str, Any]) -> Any:
        """Run a verb of `stack.validation.model` in the environment, and return its answer.

        Raises:
            StackError: it failed.
            StackError: it could not.

        """
        env = {**os.environ, **OFFLINE, "PYTHONPATH": str(_PACKAGES), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(self.python), "-m", "stack.validation.model", verb]
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            last_line = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
            raise StackError(f"the validation's model could not {verb}: {last_line}", "check memory and disk space")
        return json.loads(done.stdout)

    def _code(self) -> str:
        """Identify the model's code: hashes of its modules, and the environment's name."""
        files = sorted(_MODEL.glob("*.py"))
        return "".join(places.hash_of(path) for path in files) + self.python.parent.parent.name + expected_replies.TEXT


def prepare(cache: Path, tell: Progress) -> Material:
    """Build the validation's environment on the first call.

    Raises:
        StackError: pip could not install a package.

    """
    return Material(cache, environment.python(_base(), REQUIREMENTS, cache, tell), tell)


def torch() -> str:
    """Return the version of torch in the environment."""
    return _base().version


def _base() -> environment.Base:
    named = environment.named(REQUIREMENTS, ("torch",))
    assert named is not None
    return named


def _made(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Fill a folder on the first call; it appears when it is complete."""
    with places.lock(folder):
        if not folder.is_dir():
            part = folder.with_name(f"{folder.name}{places.PART}")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            fill(part)
            part.rename(folder)
    return folder
