# SPDX-License-Identifier: Apache-2.0
"""Ask for a number at the beginning of a long prompt, where the model's length allows one."""

import random
import re
import secrets
from collections.abc import Callable, Iterator

from stack.doctor.finding import Found, fine, note, unknown, wrong
from stack.doctor.server import judge
from stack.doctor.server.answers import Answer
from stack.doctor.server.chat import cut
from stack.doctor.server.client import NoAnswer
from stack.doctor.server.interview import REFUSED, Interview
from stack.doctor.server.shown import SEE_LOG, seen_in, shown

ENOUGH, LEAST = 128, 48
"""Tokens of an answer: at most, and at least, where tokens are rare."""
SHORT, LONG = 8192, 65_536
"""Tokens of a request: prompt and answer."""
_CONTROL = 250
"""Words of the short prompt that shows whether the model understands the question at all."""
_SPARE = 200
"""Tokens for the question and the chat template."""
_SAFE = 0.96
"""Share of the words that would fit: the tokens per word of one text differ a little from those of another."""
_DENSE = 1.5
"""Tokens per word, if the server does not count the tokens of prompts."""
_SLOWER = 1.5
"""How much more a long prompt takes than its length says, since attention grows with the square."""
_BRIEF = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}
"""Keeps models from reasoning for longer than the tokens last; a server that refuses it is asked without."""
_DIGITS = re.compile(r"[\s.,_'-]")
_TEXT = (
    "the river bends near an old stone bridge where children walk home from school every day and people sell bread fruit milk and "
    "flowers under tall green trees while a small dog sleeps in warm sun beside red brick houses"
)
_WORDS = _TEXT.split()
_FIX = (
    "most often attention over long prompts is wrong: the attention backend, --kv-cache-dtype fp8 without right scales, rope scaling "
    "or a sliding window; try another --attention-backend and --kv-cache-dtype auto"
)


class NotAsked(Exception):
    """Raised for a question that was not asked, with the reason and what to do; None if the user left it out."""

    def __init__(self, found: Found | None) -> None:
        super().__init__(found.what if found is not None else "")
        self.found = found


def question(size: int) -> Callable[[Interview], Iterator[Found]]:
    """Make the question with requests of `size` tokens."""

    def look(interview: Interview) -> Iterator[Found]:
        _allowed(interview, size)
        if interview.ratio is None:
            yield from _control(interview)
            if interview.ratio is None:
                return
        yield _needle(interview, size)

    return look


def _allowed(interview: Interview, size: int) -> None:
    """Refuse a prompt that the model cannot take, that the user left out, or that time does not allow.

    Raises:
        NotAsked: one of them.

    """
    length = interview.length
    if interview.context < size:
        raise NotAsked(None)
    if length is not None and length < size:
        raise NotAsked(note(f"no prompt of {size:,} tokens was sent: a request may have {length:,} tokens at most"))
    if length is None and size > SHORT:
        raise NotAsked(note(f"no prompt of {size:,} tokens was sent: the server does not say how long a request may be"))
    if interview.prefill is None:
        if size > SHORT:
            raise NotAsked(unknown(f"no prompt of {size:,} tokens was sent, since one of {SHORT:,} tokens was not answered"))
        return
    tokens, seconds = interview.prefill
    needed = seconds * size / max(tokens, 1) * _SLOWER
    if size > SHORT and needed > interview.client.left:
        what = f"no prompt of {size:,} tokens was sent: by the time of the shorter one it would take about {needed:.0f} s"
        raise NotAsked(unknown(what, f"pass --timeout {interview.client.longest + needed:.0f}"))


def _control(interview: Interview) -> Iterator[Found]:
    """Ask for a number in a short prompt: if that fails, a long one shows nothing."""
    interview.reserved += LEAST
    interview.brief = _BRIEF
    try:
        answer, number = _asked(interview, _CONTROL)
    except NoAnswer as failed:
        if failed.status not in REFUSED:
            raise
        interview.brief = {}
        answer, number = _asked(interview, _CONTROL)
    finally:
        interview.reserved -= LEAST
    interview.ratio = _ratio(interview, answer, _CONTROL)
    if _names(answer, number):
        return
    interview.ratio = None
    if garbled := tuple(judge.garbled(answer.content, answer.reasoning)):
        yield from garbled
    elif answer.is_cut:
        yield cut(answer)
    else:
        yield unknown(
            f"whether it reads long prompts: it does not find a number in one of {_CONTROL} words either: {shown(answer.content)}"
        )


def _needle(interview: Interview, size: int) -> Found:
    assert interview.ratio is not None
    words = int((size - ENOUGH - _SPARE - _base(interview)) / interview.ratio * _SAFE)
    interview.tell(f"waiting for the answer to a prompt of about {size:,} tokens")
    try:
        answer, number = _asked(interview, words)
    except NoAnswer as failed:
        if failed.status not in (*REFUSED, 413):
            raise
        return _refused(interview, size, failed)
    read = answer.prompt
    if read is not None and read < words // 2:
        what = f"a prompt of {words:,} words was cut to {read:,} tokens without a word: its beginning is lost"
        return seen_in(
            wrong(what, "raise the server's context (Ollama: OLLAMA_CONTEXT_LENGTH; llama-server: -c)"), "ollama/ollama#17889"
        )
    interview.ratio = _ratio(interview, answer, words)
    interview.prefill = (read or size, answer.seconds)
    return _judged(answer, number, read or size)


def _base(interview: Interview) -> int:
    """Return the tokens of a prompt with a short question: those of the chat template, above all."""
    known = interview.plain.prompt if interview.plain is not None else None
    return min(known or 0, SHORT // 2)


def _ratio(interview: Interview, answer: Answer, words: int) -> float:
    """Return the tokens per word of a prompt with `words` words of filler."""
    if answer.prompt is None:
        return _DENSE
    return max(1.0, min(4.0, (answer.prompt - _base(interview)) / words))


def _judged(answer: Answer, number: str, tokens: int) -> Found:
    if _names(answer, number):
        return fine(f"it finds a number at the beginning of a prompt of {tokens:,} tokens, in {answer.seconds:.1f} s")
    for found in judge.garbled(answer.content, answer.reasoning):
        return wrong(f"after a prompt of {tokens:,} tokens {found.what}", _FIX)
    if answer.is_cut:
        return cut(answer)
    said = shown(answer.content) or "its answer is empty"
    what = (
        f"it does not find a number at the beginning of a prompt of {tokens:,} tokens, and finds one in a short prompt: {said}"
    )
    return seen_in(wrong(what, _FIX), "vllm-project/vllm#49795", "vllm-project/vllm#8580")


def _refused(interview: Interview, size: int, failed: NoAnswer) -> Found:
    if interview.length is None:
        return note(f"it takes no prompt of {size:,} tokens: {failed.found.what}")
    what = (
        f"it says that a request may have {interview.length:,} tokens, and refuses one of about {size:,}: {failed.found.what}"
    )
    return wrong(
        what, f"most often a proxy's limit (nginx: client_max_body_size), or too little memory for the KV cache; {SEE_LOG}"
    )


def _asked(interview: Interview, words: int) -> tuple[Answer, str]:
    """Ask for a number that stands before a text of `words` words; return the answer and the number."""
    number = str(secrets.randbelow(900_000) + 100_000)
    filler = " ".join(random.Random(number).choices(_WORDS, k=words))  # noqa: S311  (not for secrets)
    prompt = (
        f"The number of the red door is {number}. Remember it.\n\n{filler}\n\n"
        "What is the number of the red door, which the first sentence names? Answer with the number only."
    )
    return interview.ask(prompt, ENOUGH, **interview.brief), number


def _names(answer: Answer, number: str) -> bool:
    """Tell whether an answer names a number; where it stands is not the question here."""
    return number in _DIGITS.sub("", answer.content[:5000]) or number in answer.reasoning
