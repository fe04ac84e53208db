# SPDX-License-Identifier: Apache-2.0
"""A running server with the API of OpenAI, as the validations ask it: which model it serves, and single requests."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stack.base import bounded_http
from stack.base.errors import StackError

WAIT = 600.0
"""Seconds for one answer: the first request of a server may compile kernels."""
LISTED = 60.0
"""Seconds for what a server says of itself, for which it computes nothing."""


@dataclass(frozen=True, slots=True)
class Model:
    """What a server serves: by which name, from which folder or repository, and how many tokens a request may have."""

    name: str
    root: str | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server by the address of its API, which ends in /v1."""

    url: str

    @property
    def here(self) -> bool:
        """Whether it is a server of this machine, so that this machine's hardware is what it runs on."""
        return bounded_http.is_here(self.url)

    def models(self) -> tuple[Model, ...]:
        """What it serves.

        Raises:
            StackError: it does not answer, or otherwise than OpenAI's API does.

        """
        try:
            listed = self.ask("models")["data"]
            return tuple(_model(one) for one in listed)
        except (KeyError, TypeError) as odd:
            raise StackError(f"{self.url}/models does not list models", "name a server with the API of OpenAI") from odd

    def model(self, name: str | None) -> Model:
        """The model of that name, or the only one.

        Raises:
            StackError: there is none, or several and no name.

        """
        found = self.models()
        fitting = [one for one in found if name in (None, one.name)]
        if len(fitting) != 1:
            served = ", ".join(one.name for one in found) or "nothing"
            raise StackError(f"{self.url} serves {served}", "name one of them with --model")
        return fitting[0]

    def version(self) -> str | None:
        """What it runs, by vLLM's own route beside the API; None where it has none or says something else.

        Raises:
            StackError: it does not answer at all.

        """
        status, data = self._request(f"{self.url.removesuffix('/v1')}/version", None)
        try:
            said = bounded_http.parsed(data)["version"] if status < 300 else None
        except (ValueError, KeyError, TypeError):
            return None
        return said if isinstance(said, str) and re.fullmatch(r"[A-Za-z0-9.+_-]{1,100}", said) else None

    def ask(self, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object that it answers: to a GET, or to a POST of `content`.

        Raises:
            StackError: no answer, an error, no JSON object, or one beyond all measure.

        """
        status, data = self._request(f"{self.url}/{path}", content)
        if status >= 300:
            said = " ".join(data[:300].decode("utf-8", "replace").split())
            raise StackError(f"{self.url}/{path} answers {status}: {said}", "see the server's log, or correct --url")
        try:
            value = bounded_http.parsed(data)
        except ValueError as bad:
            raise StackError(f"{self.url}/{path} answers no JSON", "name a server with the API of OpenAI") from bad
        if not isinstance(value, dict):
            raise StackError(f"{self.url}/{path} answers otherwise than OpenAI's API does", "correct --url")
        return value

    def _request(self, address: str, content: dict[str, Any] | None) -> tuple[int, bytes]:
        """Status and body of an answer."""
        seconds = LISTED if content is None else WAIT
        try:
            with bounded_http.asked(address, content, seconds) as answer:
                return answer.status_code, bounded_http.whole(answer, seconds)
        except bounded_http.BROKEN as failed:
            raise StackError(
                f"{self.url} does not answer ({bounded_http.why(failed)})", "start the server, or correct --url"
            ) from failed


def at(url: str) -> Endpoint:
    """The endpoint of an address, with or without /v1 at its end.

    Raises:
        StackError: it is no address of a server.

    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half a bracket, or a port beyond all ports
        known = False
    if not known:
        raise StackError(f"{url!r} is no address of a server", "write it like http://127.0.0.1:8000")
    if "@" in parts.netloc:  # it would stand in everything that names the server
        raise StackError(
            f"the address of {parts.hostname} has a user in it", "leave that out; VLLM_API_KEY is the server's key"
        )
    plain = url.rstrip("/")
    return Endpoint(plain if plain.endswith("/v1") else f"{plain}/v1")


def tokenizer(model: Model, given: Path | None) -> Path:
    """The tokenizer.json of a model: the one given (or in the folder given), else that of the folder that it was loaded from.

    Raises:
        StackError: there is none.

    """
    place = given if given is not None else Path(model.root or model.name)
    file = place / "tokenizer.json" if place.is_dir() else place
    if not file.is_file() or file.suffix != ".json":
        raise StackError(f"no tokenizer.json at {place}", "name the model's tokenizer.json, or its folder, with --tokenizer")
    return file.resolve()


def _model(listed: dict[str, Any]) -> Model:
    length = listed.get("max_model_len")
    return Model(
        str(listed["id"]), str(listed["root"]) if listed.get("root") else None, length if isinstance(length, int) else None
    )
