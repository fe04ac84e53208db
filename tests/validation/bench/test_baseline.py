# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model.verdict import Weights
from stack.validation.bench import baseline
from stack.validation.bench.baseline import MeasuredSubject

from ..factories import CPU, SPARK, STACK

OURS = Path(__file__).parents[3] / baseline.FOLDER
SUBJECT = MeasuredSubject("openai/gpt-oss-120b", Weights.REAL, SPARK, {"vllm": "5df63a720"}, "llama-benchy 0.4.0")

TOML = """\
source = "somebody"
date = "2026-01-17"
tool = "llama-benchy 0.1.1"
model = "gpt-oss-120b"
weights = "real"
gpus = [{ name = "NVIDIA GB10", count = 1 }]
[prefill]
512 = 1854
[decode.32]
512 = [60.1, 60.0, 59.9]
any = 59
"""


def loaded(folder: Path, text: str) -> baseline.Baseline:
    (folder / "one.toml").write_text(text)
    [one] = baseline.load(folder)
    return one


def test_the_published_ones_are_ours_to_be_held_against() -> None:
    published = {one.name: one for one in baseline.load(OURS) if one.pins is None}
    assert {name for name, one in published.items() if not one.unlike(SUBJECT)} == {
        "community-one-spark",
        "fork-one-spark",
        "llama-cpp-one-spark",
        "marlin-one-spark",
        "sglang-one-spark",
    }
    assert published["community-four-sparks"].unlike(SUBJECT) == "other hardware: 4 NVIDIA GB10, here 1 NVIDIA GB10"
    assert all(one.source and one.date for one in published.values())


def test_sizes_are_found_or_any() -> None:
    one = baseline.load(OURS)[0]
    assert one.name == "community-four-sparks"
    assert one.prefills(8192) == (10980,)
    assert one.decodes(128, 512) == (83.1,)
    assert one.decodes(64, 512) == one.prefills(1024) == ()
    sglang = next(one for one in baseline.load(OURS) if one.name == "sglang-one-spark")
    assert sglang.decodes(64, 1024) == (52,)


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (SUBJECT, ""),
        (replace(SUBJECT, model="/models/GPT-OSS-120B/", pins={"vllm": "other"}), ""),  # a goal has no pins
        (replace(SUBJECT, weights=Weights.DUMMY), ""),
        (replace(SUBJECT, weights=Weights.TINY), "another model: gpt-oss-120b, real weights"),
        (replace(SUBJECT, model="gpt-oss-20b"), "another model: gpt-oss-120b, real weights"),
        (replace(SUBJECT, weights=None), "the weights that the server has loaded are not known: name them with --weights"),
        (replace(SUBJECT, machine=None), "the server's machine is not known: run this on the machine of the server"),
        (replace(SUBJECT, machine=CPU), "other hardware: 1 NVIDIA GB10, here no GPU"),
        (replace(SUBJECT, machine=replace(SPARK, gpus=SPARK.gpus * 2)), "other hardware: 1 NVIDIA GB10, here 2 NVIDIA GB10"),
    ],
)
def test_what_cannot_be_compared_says_why(subject: MeasuredSubject, said: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, TOML).unlike(subject) == said


@pytest.mark.parametrize("machine", [CPU, SPARK, replace(SPARK, gpus=SPARK.gpus * 2)])
def test_what_is_recorded_is_read_back_and_grows_stale(machine: baseline.Machine, tmp_path: Path) -> None:
    subject = replace(SUBJECT, machine=machine)
    text = baseline.text(subject, STACK, {512: (1854.0, 1850.0)}, {(32, 512): (60.0, 60.1), (128, 512): (59.0,)})
    one = loaded(tmp_path, text)
    assert one.prefill == {"512": (1854.0, 1850.0)}
    assert one.decode == {"32": {"512": (60.0, 60.1)}, "128": {"512": (59.0,)}}
    assert one.unlike(subject) == ""
    assert one.unlike(replace(subject, pins={"vllm": "4ba787ec9"})).startswith("stale: recorded on ")
    assert one.unlike(replace(subject, tool="llama-benchy 0.5.0")).startswith("stale: recorded on ")
    assert one.unlike(replace(subject, machine=replace(CPU, cores=3))).startswith("other hardware: ")


def test_a_baseline_is_called_after_its_machine() -> None:
    assert baseline.file_name(SUBJECT) == "nvidia-gb10-gpt-oss-120b"
    assert baseline.file_name(replace(SUBJECT, machine=CPU)) == "epyc-2-cores-gpt-oss-120b"


ODD: Mapping[str, tuple[str, str, str]] = {
    "no source": ('source = "somebody"', "", "source is missing"),
    "date": ("2026-01-17", "last week", "date is 'last week'"),
    "weights": ('"real"', '"heavy"', "weights is 'heavy'"),
    "size": ("512 = 1854", "half = 1854", "prefill.half is not a size"),
    "speed": ("1854", "0", "prefill.512 is [0]"),
    "speed of a run": ("59.9]", "-1]", "decode.32.512 is"),
    "no runs": ("[60.1, 60.0, 59.9]", "[]", "decode.32.512 is []"),
    "words": ("1854", '"fast"', "prefill.512 is 'fast'"),
    "words among runs": ("59.9]", '"fast"]', "decode.32.512.2 is 'fast'"),
    "no hardware": ('gpus = [{ name = "NVIDIA GB10", count = 1 }]', "", "gpus is empty"),
    "no numbers": (TOML[TOML.index("[prefill]") :], "", "prefill and decode are missing"),
    "more": ("[prefill]", "more = 1\n[prefill]", "more is an unknown key"),
}


@pytest.mark.parametrize("name", ODD)
def test_another_form_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    old, new, said = ODD[name]
    assert old in TOML
    with pytest.raises(StackError) as caught:
        loaded(tmp_path, TOML.replace(old, new, 1))
    assert f"one.toml: {said}" in str(caught.value)
