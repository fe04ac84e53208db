# SPDX-License-Identifier: Apache-2.0
"""The cost of the doctor's questions: tokens and seconds; and the server that gets the key."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from stack.doctor import running
from stack.doctor.finding import Severity
from stack.doctor.server.interview import Asked
from stack.doctor.server.purse import MOST, Purse
from stack.doctor.server.shown import hiding, shown

from ..loopback import listening
from . import servers
from .good_server import Json, Reply, answer, answered, asked, delta, error
from .servers import Manner


def interview(manner: Manner, longest: float = 30.0, seen: list[Json] | None = None, **more: int) -> list[Asked]:
    with servers.serving(manner, seen=seen) as url:
        return [*running.interview(url, None, None, None, key=None, longest=longest, **more)]


def reasoning(body: Json) -> Json:
    """A model that reasons until `max_tokens` ends it."""
    most = body["max_tokens"]
    made = answer(None, reasoning=" ".join(f"thought{number}" for number in range(most)), ended="length")
    made["usage"]["completion_tokens"] = most
    return made


def uncounted(body: Json) -> Json:
    return reasoning(body) | {"usage": {}}


def modest(body: Json) -> Json:
    """A server that counts one token for each answer."""
    return reasoning(body) | {"usage": {"completion_tokens": 1, "prompt_tokens": 9}}


@pytest.mark.parametrize("chat", [reasoning, uncounted, answered])
def test_no_more_than_2000_tokens_are_asked_for(chat: "servers.Any") -> None:
    seen: list[Json] = []
    found = interview(Manner(chat=chat, pause=0), seen=seen)
    limits = [body.get("max_tokens", body.get("max_output_tokens")) for body in seen]
    assert all(isinstance(limit, int) and limit > 0 for limit in limits)
    spent = sum(one.tokens for one in found)
    assert 0 < spent <= MOST == 2000
    if chat is not answered:
        plain = [body["max_tokens"] for body in seen if "max_tokens" in body and not body.get("stream")]
        assert sum(plain) <= MOST


def test_every_question_has_its_share_of_the_tokens() -> None:
    """However long a model reasons, no question is left out for want of tokens but those that a good answer has to come before."""
    found = interview(Manner(chat=reasoning, pause=0))
    left_out = [one.question.name for one in found if one.outcome == running.NOT_ASKED]
    assert left_out == ["context-64k"]


def test_a_count_that_is_too_small_is_not_believed() -> None:
    purse = Purse()
    purse.pay(512, 1, "x" * 1600)
    assert purse.spent == 100
    purse.pay(512, 1, "", pieces=300)
    assert purse.spent == 400
    purse.pay(512, None, "")
    assert purse.spent == 912
    assert (purse.allowed(512, 1000), purse.allowed(512, 2000)) == (88, 0)


def test_an_answer_that_cannot_be_read_is_counted_in_full() -> None:
    """The server may have generated all of it; an error has no tokens."""
    for raw, status, spent in ((b"{}", 200, 512), (b"{}", 500, 0)):
        found = interview(
            Manner(change=lambda path, _, good, raw=raw, status=status: Reply(raw, status) if path == servers.CHAT else good)
        )
        assert [one.tokens for one in found if one.question.name == "content"] == [spent]


def test_questions_without_tokens_are_not_asked() -> None:
    """A server that generates far more than it was asked for uses the tokens of the other questions up."""

    def greedy(body: Json) -> Json:
        return answered(body) | {"usage": {"prompt_tokens": 70, "completion_tokens": 5000}}

    found = interview(Manner(chat=greedy))
    outcomes = {one.question.name: one.outcome for one in found}
    assert outcomes["content"] == "fine"
    assert {outcomes[name] for name in ("stream", "tool-call", "repetition", "context-8k")} == {running.NOT_ASKED}
    (stream,) = (one.findings[0].found.what for one in found if one.question.name == "stream")
    assert stream == "not asked: the 2000 tokens that it may generate are used up"


def test_questions_without_time_are_not_asked() -> None:
    """Too little time is not a fault of the server."""

    def slow(body: Json) -> Json:
        time.sleep(0.4)
        return answered(body)

    began = time.monotonic()
    found = interview(Manner(chat=slow), longest=1.0)
    assert time.monotonic() - began < 10
    assert {one.outcome for one in found if one.question.name != "metrics"} <= {"fine", "could not tell", running.NOT_ASKED}
    assert found[-1].outcome == running.NOT_ASKED
    assert "--timeout" in found[-1].findings[0].found.what


@pytest.mark.parametrize(("context", "longest"), [(0, 1000), (8192, 8192), (65_536, 65_536)])
def test_the_user_chooses_how_long_prompts_are(context: int, longest: int) -> None:
    seen: list[Json] = []
    found = {one.question.name: one.outcome for one in interview(Manner(), seen=seen, context=context)}
    words = max(len(asked(body).split()) for body in seen if "messages" in body)
    assert 0.7 * longest < words < longest or (context == 0 and words < longest)
    assert (found["context-8k"] == "fine", found["context-64k"] == "fine") == (context >= 8192, context >= 65_536)


def test_long_prompts_are_announced_before_they_are_sent() -> None:
    told: list[str] = []
    with servers.serving(Manner()) as url:
        for _ in servers.looked(url, None, None, None, key=None, longest=30, tell=lambda step, *_: told.append(step)):
            pass
    assert [step for step in told if "65,536" in step and step.startswith("waiting ")]
    assert len(told) >= len(running.CHECKS)


def test_long_prompts_are_asked_without_reasoning_if_the_server_takes_that() -> None:
    for takes in (True, False):
        seen: list[Json] = []

        def change(path: str, body: Json, good: Reply, takes: bool = takes) -> Reply:
            return good if takes or "chat_template_kwargs" not in body else error(400, "extra fields not permitted")

        found = {one.question.name: one.outcome for one in interview(Manner(change=change), seen=seen)}
        assert (found["context-8k"], found["context-64k"]) == ("fine", "fine")
        assert sum("reasoning_effort" in body for body in seen) == (3 if takes else 1)


def test_a_number_in_the_reasoning_counts_as_found() -> None:
    """Some parsers put all of an answer there if reasoning is switched off."""

    def hidden(body: Json) -> Json:
        made = answered(body)
        message = made["choices"][0]["message"]
        if "red door" in asked(body):
            message |= {"content": None, "reasoning": f"It is {message['content']}."}
        return made

    found = {one.question.name: one.outcome for one in interview(Manner(chat=hidden))}
    assert (found["context-8k"], found["context-64k"]) == ("fine", "fine")


def test_the_key_does_not_follow_a_redirect() -> None:
    told: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(str(self.headers))
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with listening(Other) as port:
        target = {"location": f"http://127.0.0.1:{port}/v1/chat/completions"}
        for path in ("/health", "/v1/models", "/metrics", servers.CHAT, servers.RESPONSES):
            manner = servers.on(path, Reply(status=307, headers=target))
            with servers.serving(manner, key="k3y") as url:
                found = [*servers.looked(url, None, None, None, key="k3y", longest=10)]
            assert any(f"127.0.0.1:{port}" in one.found.what for one in found) or path == "/metrics"
            assert not any("k3y" in one.found.what + one.found.fix for one in found)
    assert told == []


def test_the_key_is_not_repeated() -> None:
    manner = servers.on(servers.CHAT, error(400, "k3y-0815 is no good key"))
    with servers.serving(manner, key="k3y-0815") as url:
        found = [*servers.looked(url, None, None, None, key="k3y-0815", longest=10)]
    assert any("<key> is no good key" in one.found.what for one in found)
    assert not any("k3y-0815" in one.found.what for one in found)


LONG_KEY = "sk-SECRETSECRETSECRETSECRET"


@pytest.mark.parametrize(
    "said",
    [
        f"{'x' * 95} {LONG_KEY}",
        f"{'x' * 110} {LONG_KEY}",
        f"key {LONG_KEY[:10]}\u200b{LONG_KEY[10:]}",
        f"key {' '.join(LONG_KEY)}",
        f"{chr(0x200B) * 470}{LONG_KEY}",
        f"key {LONG_KEY[:9]}{chr(0x200B) * 700}{LONG_KEY[9:]}",
        f"key {LONG_KEY.lower()}",
    ],
)
def test_no_part_of_the_key_is_shown(said: str) -> None:
    with hiding(LONG_KEY):
        told = shown(said)
    assert "SEC" not in told.upper().replace(" ", "").replace("\ufffd", "")


def test_no_part_of_the_key_is_in_a_finding() -> None:
    """An error, something that is no JSON, a redirect, and a type: cut after the key is taken out."""
    filled = f"{'x' * 95} {LONG_KEY}"
    for reply in (
        error(400, filled),
        Reply((filled.encode(),), kind="text/html"),
        Reply((f"{' ' * 1990}{LONG_KEY}".encode(),)),
        Reply(status=307, headers={"location": f"/{'x' * 100}{LONG_KEY}"}),
        Reply((b"data: x\n\n",), kind=f"{'x' * 90}{LONG_KEY}"),
        servers.sse(f"data: {'x' * 95} {LONG_KEY}\n\n".encode()),
    ):
        with servers.serving(servers.on(servers.CHAT, reply)) as url:
            asked = running.interview(url, None, None, None, key=LONG_KEY, longest=10, questions=running.CHECKS[:4])
            told = str([one.findings for one in asked])
        assert "SEC" not in told.upper()


def test_a_long_answer_is_searched_for_the_key_in_time() -> None:
    began = time.process_time()
    with hiding("k" * 40 + "3y"):
        shown("k" * 10**5)
        shown("k\u200b" * 10**4)
    assert time.process_time() - began < 2


def test_a_server_that_dies_of_a_question_is_not_asked_again() -> None:
    """Its other answers would be the same error."""
    dead = []

    def change(path: str, body: Json, good: Reply) -> Reply:
        if body.get("tools"):
            dead.append(1)
        return error(500 if body else 503, "EngineDeadError") if dead else good

    found = interview(Manner(change=change))
    outcomes = {one.question.name: one.outcome for one in found}
    assert outcomes["tool-call"] == "wrong"
    (asked_last,) = (one for one in found if one.question.name == "tool-call")
    assert "it ended the server" in asked_last.findings[-1].found.what
    assert {outcomes[name] for name in ("tool-call-stream", "repetition", "context-8k")} == {running.NOT_ASKED}


def test_a_server_without_the_newer_routes_has_no_fault() -> None:
    """SGLang without --enable-metrics, and llama-server of some months ago."""

    def change(path: str, body: Json, good: Reply) -> Reply:
        return good if path in ("/health", "/v1/models", servers.CHAT) else error(404, "File Not Found")

    found = interview(Manner(change=change))
    assert {one.outcome for one in found} == {"fine", "worth knowing"}
    assert [one.question.name for one in found if one.outcome != "fine"] == ["metrics", "responses", "responses-stream"]


def test_rare_preemptions_are_fine() -> None:
    finished = "vllm:request_success_total"
    for count, outcome in ((2000, "fine"), (100, "worth knowing")):
        manner = servers.counting("vllm:num_preemptions_total", 12)
        metrics = "\n".join(f'{finished}{{finished_reason="{why}"}} {count / 2}' for why in ("stop", "length"))
        (found,) = (one for one in interview(Manner(metrics=f"{manner.metrics}{metrics}\n")) if one.question.name == "metrics")
        assert found.outcome == outcome
        assert "12 requests were preempted" in found.findings[0].found.what


def test_an_endless_stream_is_left_after_some_events() -> None:
    sent = []

    def forever() -> Iterator[bytes]:
        while True:
            sent.append(1)
            yield delta(content="and ")

    manner = servers.on(servers.CHAT, lambda _: Reply(forever(), kind="text/event-stream"), streams=True)
    began = time.monotonic()
    found = [one for one in interview(manner) if one.question.name == "stream"]
    assert time.monotonic() - began < 25
    assert found[0].findings[0].severity is Severity.WRONG
    assert found[0].tokens < 700
