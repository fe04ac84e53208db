# SPDX-License-Identifier: Apache-2.0
"""Ask whether a server lives, and which model it serves."""

from collections.abc import Iterator
from typing import Any

from stack.deploy import checkpoints
from stack.deploy.recipes import Recipe
from stack.doctor.finding import Found, fine, note, wrong
from stack.doctor.server.answers import odd, part
from stack.doctor.server.client import NoAnswer
from stack.doctor.server.interview import Interview
from stack.doctor.server.shown import SEE_LOG, shown

_HEALTH = 10.0
"""Seconds for an answer of /health."""
_UNFORCED = ("llamacpp", "library")
"""Owners of the models of llama-server and Ollama, which do not force a call of a certain tool."""
_MODELS = 1000
"""Models of a list that are read."""


def health(interview: Interview) -> Iterator[Found]:
    """Ask /health, which the engine answers with 200 while it lives."""
    try:
        reply = interview.client.get("/health", _HEALTH)
    except NoAnswer as failed:
        why = failed.found.what.removeprefix("it does not answer: ")
        yield wrong(f"the server does not answer ({why})", "start the server, or correct --url")
        return
    if reply.status in (404, 405):
        yield note("it has no /health: it is not vLLM, SGLang or llama.cpp, or a proxy stands before it")
    elif reply.status == 503:
        said = reply.message()
        yield wrong(
            f"/health answers 503{f' ({said})' if said else ''}: its engine is dead, or it still loads the model",
            f"wait if it is starting; else {SEE_LOG}",
        )
    elif reply.status != 200:
        raise reply.refusal()


def alive(interview: Interview) -> bool:
    """Ask /health again; a server that has no such route counts as alive while it answers at all."""
    try:
        return interview.client.get("/health", _HEALTH).status < 500
    except NoAnswer:
        return False


def model(interview: Interview) -> Iterator[Found]:
    """Ask which models are served, and take the one that is meant."""
    reply = interview.client.get("/v1/models")
    if reply.status != 200:
        raise reply.refusal()
    value = reply.json()
    page = part(value, "data")
    if not isinstance(page, list) or not all(isinstance(entry, dict) and isinstance(entry.get("id"), str) for entry in page):
        raise odd("the list of models has a wrong form", value)
    names = [entry["id"] for entry in page[:_MODELS]]
    wanted = interview.model
    if not names:
        yield wrong("it serves no model", SEE_LOG)
    elif wanted and wanted not in names:
        yield wrong(f"it serves {shown(', '.join(names))}, not {shown(wanted)}", "name one of them with --model")
    elif not wanted and len(names) > 1:
        yield wrong(f"it serves {shown(', '.join(names))}", "name one of them with --model")
    else:
        yield _taken(interview, next(entry for entry in page if not wanted or entry["id"] == wanted))
    interview.model = wanted or (names[0] if names else "")


def _taken(interview: Interview, entry: dict[str, Any]) -> Found:
    """Note the length of a model, and compare it with the recipe's."""
    interview.length = _length(entry)
    interview.forces = entry.get("owned_by") not in _UNFORCED
    expected = _repository(interview.recipe)
    if interview.recipe is not None and expected is not None and expected not in (entry["id"], str(entry.get("root"))):
        return note(f"it serves {shown(entry['id'])}, recipe {interview.recipe.name} is for {expected}")
    most = (
        f", up to {interview.length} tokens" if interview.length is not None else "; it does not say how long a request may be"
    )
    return fine(f"it serves {shown(entry['id'])}{most}")


def _length(entry: dict[str, Any]) -> int | None:
    """Return the longest request in tokens: vLLM and SGLang name it."""
    length = entry.get("max_model_len")
    return length if isinstance(length, int) and not isinstance(length, bool) and 0 < length < 10**9 else None


def _repository(recipe: Recipe | None) -> str | None:
    if recipe is None or recipe.model not in checkpoints.known():
        return None
    return checkpoints.load(recipe.model).repository
