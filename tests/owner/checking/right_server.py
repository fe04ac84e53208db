# SPDX-License-Identifier: Apache-2.0
"""A server that answers the doctor's questions and the serve suite's cases right; a test can make it lie."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from stack.validation.model import expected_replies
from stack.validation.serve import checks

from ...doctor import servers
from ...doctor.good_server import DONE, Json, Reply, as_json, event
from ...validation.serve import lying_vllm

VERSION = lying_vllm.VERSION
STACK = lying_vllm.STACK
MODEL = servers.MODEL
"""Of the suite's servers and of the doctor's."""


def encode(texts: Mapping[str, str]) -> Mapping[str, Sequence[int]]:
    """Encode as the server does."""
    return {name: lying_vllm.encode(text) for name, text in texts.items()}


@contextmanager
def serving(
    lie: lying_vllm.Lie = str,
    manner: servers.Manner = servers.Manner(),  # noqa: B008
    version: str = VERSION,
    key: str | None = None,
) -> Iterator[str]:
    """Serve as long as the block runs. `lie` changes the answers to the suite, `manner` those to the doctor."""

    def change(path: str, body: Json, good: Reply) -> Reply:
        if path == "/version":
            return as_json({"version": version})
        if path == "/detokenize":
            return as_json(lying_vllm.answer(path, body)[0])
        if path == checks.CHAT and _is_of_suite(body):
            told = [lie(json.dumps(each, ensure_ascii=False)) for each in lying_vllm.answer(path, body)]
            if body.get("stream"):
                return Reply([*(event(each.encode()) for each in told), DONE], kind="text/event-stream")
            return Reply(told[0].encode())
        return good if manner.change is None else manner.change(path, body, good)

    def chat(body: Json) -> Json:
        return (manner.chat or servers.answered)(body) if "messages" in body else {}

    how = servers.Manner(
        **{name: getattr(manner, name) for name in servers.Manner.__slots__} | {"change": change, "chat": chat}
    )
    with servers.serving(how, key) as url:
        yield url


def _is_of_suite(body: Json) -> bool:
    users = [str(each["content"]) for each in body["messages"] if each["role"] == "user"]
    return bool(users) and users[-1].startswith(expected_replies.ASKED)
