# SPDX-License-Identifier: Apache-2.0
"""Client of a running server with OpenAI's API: list its models, and send single requests."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stack.base import bounded_http
from stack.base.errors import StackError
from stack.deploy import checkpoints, recipes

WAIT = 600.0
"""Seconds for one answer: the first request of a server may compile kernels."""
LISTED = 60.0
"""Seconds for an answer that needs no computation, such as the list of models."""


@dataclass(frozen=True, slots=True)
class Model:
    """A served model: its name, the folder or repository it was loaded from, and the longest request in tokens."""

    name: str
    root: str | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server, given by the address of its API, which ends in /v1, and the key that it wants, if any."""

    url: str
    key: str | None = field(default=None, repr=False)

    @property
    def here(self) -> bool:
        """Whether the server runs on this machine, and so on this machine's hardware."""
        return bounded_http.is_here(self.url)

    def models(self) -> tuple[Model, ...]:
        """List the models that it serves.

        Raises:
            StackError: it does not answer, or not in the form of OpenAI's API.

        """
        try:
            listed = self.ask("models")["data"]
            return tuple(_model(each) for each in listed)
        except (KeyError, TypeError) as odd:
            raise StackError(f"{self.url}/models does not list models", "name a server with the API of OpenAI") from odd

    def model(self, name: str | None) -> Model:
        """Find the model of that name, or the only model.

        Raises:
            StackError: there is no such model, or there are several and no name was given.

        """
        models = self.models()
        fitting = [model for model in models if name in (None, model.name)]
        if len(fitting) != 1:
            served = ", ".join(model.name for model in models) or "nothing"
            raise StackError(f"{self.url} serves {served}", "name one of them with --model")
        return fitting[0]

    def version(self) -> str | None:
        """Read vLLM's version from its route `/version`; None if there is none, or the answer has another form.

        Raises:
            StackError: the server does not answer.

        """
        status, data = self._request(f"{self.url.removesuffix('/v1')}/version", None)
        try:
            version = bounded_http.parsed(data)["version"] if status < 300 else None
        except (ValueError, KeyError, TypeError):
            return None
        return version if isinstance(version, str) and re.fullmatch(r"[A-Za-z0-9.+_-]{1,100}", version) else None

    def ask(self, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a GET, or a POST if there is `content`, and return the JSON object of the answer.

        Raises:
            StackError: the answer is missing, an error, too large, or not a JSON object.

        """
        status, data = self._request(f"{self.url}/{path}", content)
        if status in (401, 403):
            raise StackError(f"{self.url}/{path} answers {status}: it wants a key", "set VLLM_API_KEY to it")
        if status >= 300:
            message = " ".join(data[:300].decode("utf-8", "replace").split())
            raise StackError(f"{self.url}/{path} answers {status}: {message}", "see the server's log, or correct --url")
        try:
            value = bounded_http.parsed(data)
        except ValueError as bad:
            raise StackError(f"{self.url}/{path} does not answer with JSON", "name a server with the API of OpenAI") from bad
        if not isinstance(value, dict):
            raise StackError(f"{self.url}/{path} does not answer as OpenAI's API does", "correct --url")
        return value

    def _request(self, address: str, content: dict[str, Any] | None) -> tuple[int, bytes]:
        """Send one request; return the status and body of the answer."""
        seconds = LISTED if content is None else WAIT
        try:
            with bounded_http.asked(address, content, seconds, self.key) as answer:
                return answer.status_code, bounded_http.whole(answer)
        except bounded_http.BROKEN as failed:
            raise StackError(
                f"{self.url} does not answer ({bounded_http.why(failed)})", "start the server, or correct --url"
            ) from failed


def at(url: str, key: str | None = None) -> Endpoint:
    """Make the endpoint of an address, with or without /v1 at its end; `key` is the API key, if the server wants one.

    Raises:
        StackError: the address is not that of a server, or contains a user.

    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an unclosed bracket, or a port out of range
        known = False
    if not known:
        raise StackError(f"{url!r} is not the address of a server", "write it like http://127.0.0.1:8000")
    if "@" in parts.netloc:  # a password would appear in every text that names the server
        raise StackError(
            f"the address of {parts.hostname} has a user in it", "leave the user out; VLLM_API_KEY is the server's key"
        )
    plain = url.rstrip("/")
    return Endpoint(plain if plain.endswith("/v1") else f"{plain}/v1", key or None)


def tokenizer(model: Model, given: Path | None, environment: Mapping[str, str] | None = None) -> Path:
    """Find the tokenizer.json of a model: in the given place, in the folder that the server names, or in the Hugging Face cache.

    Args:
        model: the served model.
        given: the file, or the folder that has it; None looks for it.
        environment: names the cache (HF_HUB_CACHE, HF_HOME); by default this process's own.

    Raises:
        StackError: it does not exist.

    """
    environment = os.environ if environment is None else environment
    places = [given] if given is not None else [*_candidates(model, environment)]
    for place in places:
        file = place / "tokenizer.json" if place.is_dir() else place
        if file.is_file() and file.suffix == ".json":
            return file.resolve()
    if given is None and re.fullmatch(recipes.REPOSITORY, model.root or model.name):
        raise StackError(
            f"no tokenizer.json of {model.root or model.name} in {_hub(environment)}",
            f"hf download {model.root or model.name} tokenizer.json, or name the file with --tokenizer",
        )
    raise StackError(f"no tokenizer.json at {places[0]}", "name the model's tokenizer.json, or its folder, with --tokenizer")


def _candidates(model: Model, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield where the files of a served model may lie on this machine."""
    source = model.root or model.name
    yield Path(source)
    if re.fullmatch(recipes.REPOSITORY, source) is None or ".." in source:
        return
    cached = _hub(environment) / f"models--{source.replace('/', '--')}"
    known = [checkpoints.load(name) for name in checkpoints.known()]
    names = [each.revision for each in known if each.repository == source and each.revision is not None]
    with contextlib.suppress(OSError):  # there is no such reference
        names.append((cached / "refs/main").read_text(encoding="ascii", errors="replace").strip())
    yield from (cached / "snapshots" / name for name in names if re.fullmatch("[0-9a-f]{40}", name))
    yield from sorted(cached.glob("snapshots/*"))


def _hub(environment: Mapping[str, str]) -> Path:
    """Return the cache of the Hugging Face hub, as its library finds it."""
    if named := environment.get("HF_HUB_CACHE"):
        return Path(named).expanduser()
    home = environment.get("HF_HOME") or f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(home).expanduser() / "hub"


def _model(listed: dict[str, Any]) -> Model:
    length = listed.get("max_model_len")
    return Model(
        str(listed["id"]), str(listed["root"]) if listed.get("root") else None, length if isinstance(length, int) else None
    )
