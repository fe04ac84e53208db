# SPDX-License-Identifier: Apache-2.0
"""Requests to an OpenAI-compatible server; whatever is wrong with an answer is said with the request and the answer."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

LONGEST = 300.0
"""Seconds for an answer: the first one that wants log-probabilities takes a while on a CPU."""
SHOWN = 1500
"""Characters of a request or an answer that a failure shows."""

Json = dict[str, Any]


class Wrong(Exception):
    """An answer is not what it has to be."""

    def __init__(self, problem: str, *, request: object = None, answer: object = None, expected: object = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.told = {"request": request, "answer": answer, "expected": expected}

    def __str__(self) -> str:
        told = (f"{name}: {_shown(value)}" for name, value in self.told.items() if value is not None)
        return "\n".join((self.problem, *told))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with its answer: the JSON of a whole one, or of each event of a stream."""

    path: str
    body: Mapping[str, Any]
    events: Sequence[Json]

    @property
    def answer(self) -> Json:
        """The answer of a request that is answered at once."""
        return self.events[0]

    def wrong(self, problem: str, expected: object = None) -> Wrong:
        """What to raise of this exchange."""
        answer = self.events[0] if len(self.events) == 1 else list(self.events)
        return Wrong(
            problem, request=f"POST {self.path} {json.dumps(self.body, ensure_ascii=False)}", answer=answer, expected=expected
        )

    def equal(self, what: str, found: object, expected: object) -> None:
        """Compare a part of the answer.

        Raises:
            Wrong: it is another.

        """
        if found != expected:
            raise self.wrong(f"{what} is {_shown(found)}", expected)

    def part(self, *keys: str | int) -> Any:
        """A part of the answer, by keys and positions.

        Raises:
            Wrong: there is no such part.

        """
        found: Any = self.answer
        for key in keys:
            try:
                found = found[key]
            except (KeyError, IndexError, TypeError) as missing:
                raise self.wrong(f"the answer has no {'.'.join(map(str, keys))}") from missing
        return found


@dataclass(frozen=True, slots=True)
class Talk:
    """Where a server is, and what it calls its model."""

    url: str
    model: str

    def get(self, path: str) -> Any:
        """The JSON of a page.

        Raises:
            Wrong: there is none.

        """
        try:
            answer = requests.get(self.url + path, timeout=LONGEST)
            if answer.status_code != 200:
                raise Wrong(f"it answers {answer.status_code}", request=f"GET {path}", answer=answer.text)
            return answer.json()
        except (requests.RequestException, ValueError) as failed:
            raise Wrong(f"no JSON comes back: {failed}", request=f"GET {path}") from failed

    def ask(self, path: str, /, **body: Any) -> Exchange:
        """Ask, and take the answer whole.

        Raises:
            Wrong: the answer is an error, or not JSON.

        """
        asked = {"model": self.model, **body}
        with self._posted(path, asked) as answer:
            try:
                return Exchange(path, asked, [answer.json()])
            except ValueError as failed:
                raise Exchange(path, asked, []).wrong(f"the answer is not JSON: {failed}") from failed

    def stream(self, path: str, /, **body: Any) -> Exchange:
        """Ask, and take the answer as a stream of events.

        Raises:
            Wrong: the answer is an error, or no stream of JSON that comes to its end.

        """
        asked = {"model": self.model, "stream": True, **body}
        events: list[Json] = []
        with self._posted(path, asked) as answer:
            kind = answer.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                raise Exchange(path, asked, []).wrong(f"the answer is {kind or 'of no type'}, not a stream")
            try:
                events.extend(_events(answer))
            except (requests.RequestException, ValueError) as failed:
                raise Exchange(path, asked, events).wrong(f"the stream breaks off: {failed}") from failed
        return Exchange(path, asked, events)

    def _posted(self, path: str, asked: Json) -> requests.Response:
        try:
            answer = requests.post(self.url + path, json=asked, timeout=LONGEST, stream=bool(asked.get("stream")))
        except requests.RequestException as failed:
            raise Exchange(path, asked, []).wrong(f"no answer comes back: {failed}") from failed
        if answer.status_code != 200:
            raise Exchange(path, asked, [{"error": answer.text}]).wrong(f"it answers {answer.status_code}")
        return answer


def _events(answer: requests.Response) -> Iterator[Json]:
    """The data of each event. A chat stream ends with [DONE]; one of responses with response.completed or its like."""
    ended = False
    for line in answer.iter_lines():
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            ended = True
            continue
        event = json.loads(data)
        ended = ended or str(event.get("type")) in ("response.completed", "response.incomplete", "response.failed")
        yield event
    if not ended:
        raise ValueError("it has no end")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} … {text[-SHOWN // 2 :]}"
