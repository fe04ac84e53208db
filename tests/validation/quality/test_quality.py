# SPDX-License-Identifier: Apache-2.0
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.model.ids import Sha256
from stack.model.verdict import Case, Outcome
from stack.validation import endpoint, texts
from stack.validation.quality import scores
from stack.validation.quality.choices import CHOICES
from stack.validation.quality.suite import Quality, Recording, Server
from stack.validation.suite import Job

from ..factories import STACK
from .server import VOCABULARY, Behaviour, log_softmax, logits, serving, tokens

TEXT = texts.ALMANAC.read_text(encoding="utf-8")[:3000]


def run(folder: Path, name: str = "", behaviour: Behaviour | None = None, top: int = 20, **fields: object) -> dict[str, Case]:
    """Record a server, where a name is given, and compare."""
    suite = {"text": TEXT, "stack": STACK, "reference": "bf16"} | fields
    with serving(behaviour or Behaviour()) as url:
        server = endpoint.at(url), "little"
        recordings = [Recording(name, lambda _: nullcontext(server))] if name else []
        return {case.name: case for case in Quality(folder, recordings=recordings, top=top, **suite)(Job())}  # type: ignore[arg-type]


def test_a_record_is_what_the_server_thinks(tmp_path: Path) -> None:
    case = run(tmp_path, "bf16", top=VOCABULARY)["quality/recorded/bf16"]
    assert case.outcome is Outcome.PASSED
    ids = tokens(TEXT)
    losses = [-log_softmax(logits(ids[:place], Behaviour()))[ids[place]] for place in range(1, len(ids))]
    assert case.measured["tokens"] == len(losses) == len(scores.load(tmp_path / "bf16.json").places)
    assert case.measured["perplexity"] == pytest.approx(math.exp(sum(losses) / len(losses)))


def test_choices_are_held_against_the_reference(tmp_path: Path) -> None:
    run(tmp_path, "bf16", top=VOCABULARY)
    run(tmp_path, "o-fp8", Behaviour(noise=0.05), top=VOCABULARY)
    cases = run(tmp_path, "qkv-mxfp4", Behaviour(noise=0.5), top=VOCABULARY)
    assert {name for name, case in cases.items() if case.outcome is Outcome.PASSED} == {
        *("quality/recorded/qkv-mxfp4", "quality/qkv-mxfp4", "quality/o-fp8")
    }
    little, much = (cases[f"quality/{name}"].measured for name in ("o-fp8", "qkv-mxfp4"))
    assert 0 < float(little["KL"]) < float(much["KL"])
    # With the whole vocabulary in the record it is the divergence itself.
    ids = tokens(TEXT)
    pairs = [
        tuple(log_softmax(logits(ids[:place], Behaviour(noise=noise))) for noise in (0, 0.5)) for place in range(1, len(ids))
    ]
    exact = [math.fsum(math.exp(a) * (a - b) for a, b in zip(*pair, strict=True)) for pair in pairs]
    assert much["KL"] == pytest.approx(sum(exact) / len(exact), rel=1e-4)
    assert cases["quality/qkv-mxfp4"].margins["blind"] > 1
    assert cases["quality/qkv-mxfp4"].bar is not None
    # Fewer likely tokens say less, never more.
    run(tmp_path / "few", "bf16", top=3)
    few = run(tmp_path / "few", "qkv-mxfp4", Behaviour(noise=0.5), top=3)["quality/qkv-mxfp4"].measured
    assert float(few["KL"]) < float(much["KL"])
    assert float(few["covered"]) < float(much["covered"]) == pytest.approx(1)


def test_what_was_not_recorded_is_not_run_and_says_how_it_can_be(tmp_path: Path) -> None:
    cases = run(tmp_path)
    assert {case.outcome for case in cases.values()} == {Outcome.NOT_RUN}
    assert set(cases) == {f"quality/{choice.name}" for choice in CHOICES}
    assert cases["quality/qkv-mxfp4"].why == (
        "bf16 is not recorded: start a server with dense layers in BF16 and run `stack validate quality --url URL --as bf16`"
    )
    run(tmp_path, "bf16")
    assert run(tmp_path)["quality/all-mxfp4"].why == "all-mxfp4 needs a GPU: a CPU has no kernel for linear layers in MXFP4"
    assert "start a server with --quant" in run(tmp_path, gpu=True)["quality/all-mxfp4"].why
    assert run(tmp_path)["quality/all-fp8"].why == (
        """all-fp8 is not recorded: start a server with --quantization-config '{"targets":{"*.qkv_proj":"fp8","*.o_proj":"fp8"},"""
        """"lm_head":"fp8"}' and run `stack validate quality --url URL --as all-fp8`"""
    )


def test_a_choice_that_changes_nothing_fails(tmp_path: Path) -> None:
    """A flag that a server ignores without a word."""
    run(tmp_path, "bf16")
    case = run(tmp_path, "lm_head-mxfp4")["quality/lm_head-mxfp4"]
    assert case.outcome is Outcome.FAILED
    assert case.why.startswith(
        "nothing was quantized, since every number equals the reference's: was the server started with --quant"
    )
    # Under another name it is the reference once more, which shows how steady a server is.
    assert run(tmp_path, "again")["quality/again"].outcome is Outcome.PASSED


@pytest.mark.parametrize("top", [5, 20])
@pytest.mark.parametrize("behaviour", [Behaviour(deaf=True), Behaviour(noise=8)], ids=["deaf", "noise"])
def test_a_server_that_does_not_run_the_model_fails(tmp_path: Path, behaviour: Behaviour, top: int) -> None:
    run(tmp_path, "bf16", top=top)
    case = run(tmp_path, "qkv-mxfp4", behaviour, top)["quality/qkv-mxfp4"]
    assert case.outcome is Outcome.FAILED
    assert case.why.startswith("it is as far from the reference as a server that does not run the model")
    assert float(case.measured["top-1 agreement"]) < 0.1


def servers(opened: list[str], **noises: float) -> list[Recording]:
    """Servers that are started when they are read, each with so much noise; `opened` gets their names. NaN: it does not start."""

    def starting(name: str, noise: float) -> Callable[[object], AbstractContextManager[Server]]:
        @contextmanager
        def start(_: object) -> Iterator[Server]:
            opened.append(name)
            if math.isnan(noise):
                raise StackError("the server did not start", "look why")
            with serving(Behaviour(noise=noise)) as url:
                yield endpoint.at(url), "little"

        return start

    return [Recording(name.replace("_", "-"), starting(name.replace("_", "-"), noise)) for name, noise in noises.items()]


def test_servers_are_started_for_what_is_asked_for(tmp_path: Path) -> None:
    def found(
        opened: list[str], only: tuple[str, ...] = (), known: Mapping[str, Case] = MappingProxyType({})
    ) -> dict[str, Case]:
        recordings = servers(opened, bf16=0.0, qkv_fp8=math.nan, o_fp8=0.1)
        return {case.name: case for case in Quality(tmp_path, TEXT, STACK, "bf16", recordings)(Job(only, known))}

    opened: list[str] = []
    first = found(opened, ("quality/o-fp8",))
    assert opened == ["bf16", "o-fp8"]
    assert {name: case.outcome for name, case in first.items()} == dict.fromkeys(
        ["quality/recorded/bf16", "quality/recorded/o-fp8", "quality/o-fp8"], Outcome.PASSED
    )
    opened.clear()
    second = found(opened, known=first)
    assert opened == ["qkv-fp8"]
    assert second["quality/recorded/qkv-fp8"].why == "the server did not start: look why"
    assert second["quality/qkv-fp8"].outcome is Outcome.NOT_RUN
    assert not first.keys() & second.keys()


LIES = {
    "nothing": "no prompt_logprobs",
    "one less": "their numbers differ",
    "other tokens": "of the text has no log-probability",
    "few": "1 log-probabilities for a token, requested were 20",
    "positive": "the log-probabilities for a token are not valid",
    "no distribution": "the log-probabilities for a token are not valid",
    "nan": "the log-probabilities for a token are not valid",
    "words": "have an unknown form",
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_is_no_distribution_is_no_record(tmp_path: Path, lie: str) -> None:
    case = run(tmp_path, "bf16", Behaviour(lie=lie))["quality/recorded/bf16"]
    assert case.outcome is Outcome.FAILED
    assert LIES[lie] in case.why
    assert not (tmp_path / "bf16.json").exists()


def test_a_server_of_another_stack_is_not_recorded(tmp_path: Path) -> None:
    case = run(tmp_path, "bf16", Behaviour(version="0.32.0+sm121.gbbbbbbbb"))["quality/recorded/bf16"]
    assert (case.outcome, case.why) == (Outcome.FAILED, "the server is of the stack bbbbbbbb, this one is aaaaaaaa")
    assert not (tmp_path / "bf16.json").exists()
    case = run(tmp_path, "bf16", Behaviour(version="0.32.0+sm121.gaaaaaaaa.cpu"))["quality/recorded/bf16"]
    assert (case.outcome, case.measured["version"]) == (Outcome.PASSED, "0.32.0+sm121.gaaaaaaaa.cpu")


def test_a_text_that_is_too_short_says_nothing(tmp_path: Path) -> None:
    case = run(tmp_path, "bf16", text="The clock gains four minutes.")["quality/recorded/bf16"]
    assert (case.outcome, case.why) == (Outcome.FAILED, "the text has 4 tokens, at least 50 are needed")


def test_only_records_of_the_same_are_compared(tmp_path: Path) -> None:
    run(tmp_path, "bf16", top=5)
    why = run(tmp_path, "o-fp8", Behaviour(noise=0.1))["quality/o-fp8"].why
    assert why == "o-fp8 and bf16 were recorded with other tokens or another --top: record them again"
    assert "another stack or text" in run(tmp_path, text=TEXT + "!")["quality/o-fp8"].why
    assert "another stack or text" in run(tmp_path, stack=Sha256("b" * 64))["quality/o-fp8"].why


def test_records_are_read_strictly(tmp_path: Path) -> None:
    run(tmp_path, "bf16")
    file = tmp_path / "bf16.json"
    good = json.loads(file.read_text())
    odd = [
        {"schema": 2},
        {"more": 1},
        {"places": []},
        {"places": [[1, [1], ["a"]]]},
        {"places": [[1, [2], [-1.0]]]},
        {"places": [[1, [1, 2], [-1.0]]]},
        {"name": "../x"},
        {"top": -1},
    ]
    for change in odd:
        file.write_text(json.dumps(good | change))
        with pytest.raises(StackError, match=r"bf16\.json"):
            scores.load(file)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(StackError, match="is not whole, strict JSON"):
        run(tmp_path)


def test_pieces_are_the_text_and_end_with_paragraphs() -> None:
    whole = texts.ALMANAC.read_text(encoding="utf-8")
    pieces = list(scores.pieces(whole))
    assert "".join(pieces) == whole
    assert len(pieces) > 1
    assert all(piece.endswith("\n\n") for piece in pieces[:-1])


GOOD: list[Any] = [[place, [place, place + 1], [-0.5, -1.0]] for place in range(3)]
FORGED: dict[str, Any] = {
    "more than certain": [0, [0, 1], [800.0, -1.0]],
    "more than one": [0, [0, 1], [-0.0, -0.0]],
    "beyond all measure": [0, [0, 1], [-1e308, -1.0]],
    "too long a number": [0, [0, 1], [-(10**400), -1.0]],
    "of other tokens": [0, [5, 1], [-0.5, -1.0]],
}


def record(**changed: Any) -> str:
    whole = {
        "schema": 1,
        "name": "o-fp8",
        "model": "m",
        "stack": "a" * 64,
        "text": "b" * 64,
        "top": 2,
        "here": True,
        "places": GOOD,
    }
    return json.dumps(whole | changed)


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_record_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "o-fp8.json"
    file.write_text(record())
    assert len(scores.load(file).places) == len(GOOD)
    file.write_text(record(places=[FORGED[name], *GOOD[1:]]))
    with pytest.raises(StackError, match="places have an unknown form: record it again"):
        scores.load(file)


def test_infinity_and_a_renamed_record_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "o-fp8.json"
    file.write_text(record().replace("-0.5", "-1e999", 1))
    with pytest.raises(StackError, match="places have an unknown form"):
        scores.load(file)
    file.write_text(record(name="bf16"))
    with pytest.raises(StackError, match="is a record of 'bf16': do not rename a record"):
        scores.load(file)
