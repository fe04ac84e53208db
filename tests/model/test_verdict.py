# SPDX-License-Identifier: Apache-2.0
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.model import verdict
from stack.model.ids import Sha256
from stack.model.inputs import CODE, Input
from stack.model.verdict import LIMIT, Case, Gpu, Machine, Outcome, Pinned, Verdict, Weights, as_json, load, read, write

from .factories import refusal

MACHINE = Machine(
    "Linux 6.11",
    "aarch64",
    "Cortex-X925",
    20,
    128_000_000_000,
    ("asimd", "bf16"),
    (Gpu("NVIDIA GB10", "12.1", None, "590.48.01"),),
    "13.1",
)
ONE = Case(
    "kernels/moe/mxfp4-cpu/m=33",
    Outcome.PASSED,
    needs=("cpu", "avx512_bf16"),
    measured={"rel-L2": 0.003, "backend": "CPU"},
    bar=0.05,
    margins={"good": 16.7, "one expert dropped": 3.1},
    seconds=1.25,
)
VERDICT = Verdict(
    stack=Sha256("a" * 64),
    pins={"vllm": Pinned("5df63a720", "v0.32.0"), "cutlass": Pinned("b46b16d003484063bca4ed365e44095c4c6ed633")},
    made="2026-11-21T21:40:00Z",
    machine=MACHINE,
    versions={"torch": "2.13.0+cpu"},
    cases=(ONE, Case("serve/chat", Outcome.FAILED, "content is null\nlast lines"), Case("serve/x", Outcome.NOT_RUN, "no GPU")),
    recipe="gpt-oss-tiny",
    weights=Weights.TINY,
)


def forged(change: Callable[[dict[str, Any]], object], *, digest: bool = True) -> bytes:
    """A verdict with something else in it, and a digest that fits."""
    content = as_json(VERDICT)
    change(content)
    return json.dumps(content | ({"digest": verdict._digest(content)} if digest else {})).encode()


def test_what_is_written_is_read() -> None:
    assert read(write(VERDICT), "v.json") == VERDICT
    least = replace(VERDICT, recipe=None, weights=None, cases=(), whole=False, machine=Machine("L", "x", "c", 1, 1))
    assert read(write(least), "v.json") == least


def test_layout_does_not_count() -> None:
    content = json.loads(write(VERDICT))
    assert read(json.dumps(dict(reversed(content.items())), indent=7).encode(), "v.json") == VERDICT


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "an outcome": lambda content: content["cases"][1].update(outcome="passed", why=""),
    "a number": lambda content: content["cases"][0]["measured"].update({"rel-L2": 0.004}),
    "the stack": lambda content: content["stack"].update(digest="b" * 64),
    "the machine": lambda content: content["machine"].update(cores=21),
    "a case less": lambda content: content["cases"].pop(),
    "whole": lambda content: content.update(whole=False),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_was_edited_by_hand_is_refused(name: str, tmp_path: Path) -> None:
    read(forged(EDITS[name]), "v.json")  # with a digest that fits it is a verdict, another one
    (tmp_path / "v.json").write_bytes(forged(EDITS[name], digest=False))
    line = refusal(tmp_path, load, tmp_path / "v.json")
    assert line == "v.json was altered: its digest does not match: validate again; verdicts are not edited"


FORMS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "schema": (lambda content: content.update(schema=2), "schema is 2, this stack reads 1"),
    "schema's type": (lambda content: content.update(schema=True), "schema is True: it has to be a number"),
    "unknown key": (lambda content: content.update(more=1), "more is an unknown key"),
    "unknown key of a case": (lambda content: content["cases"][0].update(more=1), "cases[0].more is an unknown key"),
    "unknown key of the stack": (lambda content: content["stack"].update(more=1), "stack.more is an unknown key"),
    "unknown key of a pin": (lambda content: content["stack"]["pins"]["vllm"].update(more=1), "more is an unknown key"),
    "unknown key of the machine": (lambda content: content["machine"].update(more=1), "machine.more is an unknown key"),
    "unknown key of a GPU": (lambda content: content["machine"]["gpus"][0].update(more=1), "gpus[0].more is an unknown key"),
    "missing key": (lambda content: content.pop("whole"), "whole is missing"),
    "no cases": (lambda content: content.pop("cases"), "cases is missing"),
    "no needs": (lambda content: content["cases"][0].pop("needs"), "cases[0].needs is missing"),
    "no flags": (lambda content: content["machine"].pop("flags"), "machine.flags is missing"),
    "no GPUs": (lambda content: content["machine"].pop("gpus"), "machine.gpus is missing"),
    "no such time": (
        lambda content: content.update(made="9999-99-99T99:99:99Z"),
        "made is 9999-99-99T99:99:99Z: there is no such time",
    ),
    "no table": (lambda content: content.update(machine=[]), "machine is []: it has to be a table"),
    "odd outcome": (lambda content: content["cases"][0].update(outcome="skipped"), "cases[0].outcome is 'skipped'"),
    "why of a pass": (lambda content: content["cases"][0].update(why="but"), "cases[0].why contradicts the outcome passed"),
    "failure without why": (lambda content: content["cases"][1].update(why=" "), "cases[1].why contradicts the outcome failed"),
    "not run without why": (lambda content: content["cases"][2].update(why=""), "cases[2].why contradicts the outcome not-run"),
    "case twice": (
        lambda content: content["cases"].append(content["cases"][0]),
        "has the case kernels/moe/mxfp4-cpu/m=33 twice",
    ),
    "name": (lambda content: content["cases"][0].update(name="kernels/../x y"), "cases[0].name is 'kernels/../x y'"),
    "name without suite": (lambda content: content["cases"][0].update(name="kernels"), "cases[0].name is 'kernels'"),
    "needs": (lambda content: content["cases"][0].update(needs=["SM 121"]), "cases[0].needs is ['SM 121']"),
    "number as text": (lambda content: content["cases"][0].update(bar="0.05"), "cases[0].bar is '0.05'"),
    "truth as number": (lambda content: content["cases"][0].update(seconds=True), "cases[0].seconds is True"),
    "huge number": (lambda content: content["cases"][0].update(seconds=10**400), "cases[0].seconds is 1000"),
    "negative seconds": (lambda content: content["cases"][0].update(seconds=-1), "cases[0].seconds is -1"),
    "text as margin": (lambda content: content["cases"][0]["margins"].update(good="far"), "cases[0].margins.good is 'far'"),
    "steering": (lambda content: content["cases"][1].update(why="\x1b[2J"), "cases[1].why is '\\x1b[2J'"),
    "steering in eight bits": (lambda content: content["machine"].update(cpu="\x9b2J"), "machine.cpu is '\\x9b2J'"),
    "steering of the direction": (
        lambda content: content["cases"][1].update(why="a \u202e b"),
        "cases[1].why is 'a \\u202e b'",
    ),
    "half a surrogate pair": (lambda content: content["machine"].update(cpu="\ud800"), "machine.cpu is '\\ud800'"),
    "a GPU among a CPU's flags": (
        lambda content: content["machine"].update(flags=["sm3", "sm121"]),
        "machine.flags has sm121, which no CPU has",
    ),
    "steering flag": (lambda content: content["machine"].update(flags=["\x1b[2J"]), "machine.flags has '\\x1b[2J'"),
    "steering pin": (
        lambda content: content["stack"]["pins"].update({"\x1b": content["stack"]["pins"]["vllm"]}),
        "stack.pins.'\\x1b' is not a valid name",
    ),
    "time in other digits": (lambda content: content.update(made="\u0662026-11-21T21:40:00Z"), "made is "),
    "odd label": (lambda content: content["versions"].update({"\x1b": "1"}), "is not a valid name"),
    "time": (lambda content: content.update(made="yesterday"), "made is 'yesterday'"),
    "weights": (lambda content: content.update(weights="heavy"), "weights is 'heavy'"),
    "capability": (lambda content: content["machine"]["gpus"][0].update(capability="sm_121"), "capability is 'sm_121'"),
}


@pytest.mark.parametrize("name", FORMS)
def test_another_form_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    change, said = FORMS[name]
    (tmp_path / "v.json").write_bytes(forged(change))
    line = refusal(tmp_path, load, tmp_path / "v.json")
    assert line.startswith("v.json")
    assert said in line


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not whole, strict JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"a": 1, "a": 2}', "an object has a key twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b"\xff", "is not whole, strict JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not whole, strict JSON"),
        (b" " * (LIMIT + 1), "is larger than 16 MiB"),
    ],
    ids=["empty", "list", "key twice", "nan", "not utf-8", "deep", "long number", "enormous"],
)
def test_what_is_no_verdict_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_bytes(data)
    assert said in refusal(tmp_path, load, tmp_path / "v.json")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, load, tmp_path / "v.json").startswith("v.json cannot be read")


DATA = write(VERDICT)


@given(st.integers(0, len(DATA) - 2))
def test_a_verdict_cut_off_anywhere_is_refused(length: int) -> None:
    with pytest.raises(StackError):
        read(DATA[:length], "v.json")


@given(st.integers(0, len(DATA) - 1), st.integers(0, 255))
def test_no_byte_can_change_what_it_says(place: int, byte: int) -> None:
    data = DATA[:place] + bytes([byte]) + DATA[place + 1 :]
    try:
        assert read(data, "v.json") == VERDICT
    except StackError as refused:
        assert "\n" not in str(refused)


NUMBERS = st.floats() | st.integers(-(10**9), 10**9)


# Half a surrogate pair, too: JSON can spell one, and a server's answer stands in a failure.
TEXTS = st.text(st.characters())


@given(TEXTS, TEXTS | NUMBERS, st.floats(0, 1e9))
@example("\ud800 \u202e", "a\tb\u2028\udfff", 0.0)
def test_whatever_a_case_has_measured_can_be_read_again(why: str, value: str | float, seconds: float) -> None:
    case = Case("serve/x", Outcome.FAILED, f"because {why}", measured={"it": value}, seconds=seconds)
    [again] = read(write(replace(VERDICT, cases=(case,))), "v.json").cases
    measured = again.measured["it"]
    if isinstance(value, str) or not math.isfinite(value):
        assert isinstance(measured, str)
    else:
        assert measured == value
    assert again.seconds == pytest.approx(seconds, abs=1e-3)
    if why.isascii() and why.isprintable():
        assert again.why == case.why


def test_many_flags_are_read_at_once() -> None:
    flags = [f"f{place}" for place in range(200_000)]
    began = time.monotonic()
    read(forged(lambda content: content["machine"].update(flags=flags)), "v.json")
    assert time.monotonic() - began < 120  # each held against each other takes hours


def test_an_error_is_a_line_that_can_be_read() -> None:
    with pytest.raises(StackError) as refused:
        read(forged(lambda content: content["cases"][0].update(outcome="a" * 10**6)), "v.json")
    assert len(str(refused.value)) < 500


def test_a_verdict_that_could_not_be_read_is_not_written() -> None:
    with pytest.raises(StackError, match=r"cases\[0\]\.bar is NaN|strict JSON"):
        write(replace(VERDICT, cases=(replace(ONE, bar=math.nan),)))


def test_a_verdict_of_an_image_names_it_and_the_gates_of_its_time() -> None:
    image, gates = f"sha256:{'b' * 64}", {"cpu": Sha256("c" * 64)}
    inside = replace(VERDICT, image=image, gates=gates)
    assert read(write(inside), "v.json") == inside
    edited = write(inside).replace(b"b" * 64, b"d" * 64)
    with pytest.raises(StackError, match="was altered"):
        read(edited, "v.json")
    # One without an image is what it was before there were any: stacks of that time read it.
    assert not {"image", "gates"} & as_json(VERDICT).keys()


@pytest.mark.parametrize(
    "change",
    [
        {"image": "latest"},
        {"image": f"sha256:{'B' * 64}"},
        {"gates": {"a b": Sha256("c" * 64)}},
        {"gates": {"cpu": Sha256("c")}},
    ],
)
def test_an_odd_image_or_gate_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StackError, match=r"image|gates"):
        write(replace(VERDICT, **change))


BY_PATH = Input("vllm", ("csrc/*", "vllm/one.py"), {"(pin)": "c" * 64, "vllm/a file.py": f"100644 {'d' * 40}"})
BY_CODE = Input(CODE, None, {"tools/stack/validation/kernels.py": "e" * 64})
BOUND = replace(
    VERDICT,
    cases=(replace(ONE, inputs={"vllm": BY_PATH.digest, CODE: BY_CODE.digest}), *VERDICT.cases[1:]),
    inputs={one.digest: one for one in (BY_PATH, BY_CODE)},
)


def test_inputs_are_read_as_they_were_written() -> None:
    assert read(write(BOUND), "v.json") == BOUND
    assert "inputs" not in json.loads(write(VERDICT))


def test_an_inputs_digest_covers_all_of_it() -> None:
    others = (
        replace(BY_PATH, of="flashinfer"),
        replace(BY_PATH, files=None),
        replace(BY_PATH, files=()),
        replace(BY_PATH, content={**BY_PATH.content, "x": "y"}),
        replace(BY_PATH, content={"(pin)": "c" * 64}),
    )
    assert len({BY_PATH.digest, *(one.digest for one in others)}) == 6
    assert replace(BY_PATH, files=("vllm/one.py", "csrc/*")).digest == BY_PATH.digest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one["inputs"][BY_PATH.digest]["content"].update({"vllm/a file.py": "removed"}), "is not the digest of this input"),
        (lambda one: one["inputs"].pop(BY_PATH.digest), "names an input of vllm that is not listed"),
        (lambda one: one["cases"][0]["inputs"].update(vllm=BY_CODE.digest), "names an input of vllm that is not listed"),
        (lambda one: one["cases"][0]["inputs"].update({"a b": BY_CODE.digest}), "is not a kind of input"),
        (lambda one: one["cases"][0]["inputs"].update(vllm="x"), "64 hexadecimal digits"),
        (lambda one: one["inputs"][BY_PATH.digest].update(more=1), "unknown key"),
        (lambda one: one["inputs"][BY_PATH.digest]["content"].update({"a\x1b": "removed"}), "is not a path"),
    ],
)  # fmt: skip
def test_odd_inputs_are_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str) -> None:
    content = as_json(BOUND)
    change(content)
    data = json.dumps(content | {"digest": verdict._digest(content)}).encode()
    assert said in refusal(tmp_path, read, data, "v.json")
