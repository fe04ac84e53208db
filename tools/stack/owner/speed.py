# SPDX-License-Identifier: Apache-2.0
"""Measure how fast a server that has just started writes one answer."""

import json
import time
from collections.abc import Iterator
from typing import Any

import requests

from stack.base import bounded_http

_TOKENS = 128
_SECONDS = 120.0
_PROMPT = "Count from 1 to 100, one number a line."


def measure(url: str, model: str, key: str | None) -> float | None:
    """Return the tokens per second of one answer after its first token; None if it cannot be told."""
    content = {
        "model": model,
        "messages": [{"role": "user", "content": _PROMPT}],
        "max_tokens": _TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        with bounded_http.asked(f"{url}/v1/chat/completions", content, _SECONDS, key) as answer:
            return _speed(answer) if answer.status_code == 200 else None
    except (*bounded_http.BROKEN, ValueError, AttributeError):
        return None


def _speed(answer: requests.Response) -> float | None:
    """Return the tokens per second of a streamed answer; None if it is too short, or does not say how many tokens it has."""
    first, last, tokens = 0.0, 0.0, 0
    for event in _events(answer):
        if event.get("choices"):
            last = time.monotonic()
            first = first or last
        tokens = (event.get("usage") or {}).get("completion_tokens") or tokens
    return (tokens - 1) / (last - first) if last > first and tokens > 1 else None


def _events(answer: requests.Response) -> Iterator[dict[str, Any]]:
    for line in bounded_http.lines(answer):
        data = line.partition(b"data:")[2].strip()
        if data and data != b"[DONE]":
            yield json.loads(data)
