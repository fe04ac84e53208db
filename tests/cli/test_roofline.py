# SPDX-License-Identifier: Apache-2.0
import json
import re
from pathlib import Path

import pytest

from .conftest import Stack

RECIPE = "gpt-oss-120b-spark"


def test_components_limits_and_what_was_measured(stack: Stack) -> None:
    done = stack("roofline", RECIPE)
    assert (done.code, done.err) == (0, "")
    assert f"{RECIPE}: gpt-oss-120b on NVIDIA DGX Spark (GB10), 273 GB/s" in done.out
    assert re.search(r"^experts +MXFP4, 4 of 128, 2880 x 2944 +1\.946 +7\.13 +69\.5% +68\.8% +66\.2%$", done.out, re.MULTILINE)
    assert re.search(rf"^{RECIPE} +512 +1 +2\.799 +10\.25 +97\.5$", done.out, re.MULTILINE)
    # The first context has what was published without one; no other repeats it.
    assert done.out.count("llama.cpp on one DGX Spark") == 1
    assert done.out.count("the fork's container on one DGX Spark") == 3
    assert "one change at a time" not in done.out


def test_the_steps(stack: Stack) -> None:
    found = stack("roofline", RECIPE, "--steps").out.rpartition("one change at a time")[2]
    assert re.findall(r"^(\+ )?(?:as|qkv|lm_head|experts|KV) .*? (\d\.\d{3}) +([\d.]+) +([\d.]+)", found, re.MULTILINE) == [
        ("", "5.171", "18.94", "52.8"),
        ("+ ", "3.768", "13.80", "72.5"),
        ("+ ", "2.917", "10.69", "93.6"),
        ("+ ", "2.831", "10.37", "96.4"),
        ("+ ", "2.788", "10.21", "97.9"),
        ("+ ", "2.788", "10.21", "97.9"),
    ]


def test_the_documentation_has_these_numbers(stack: Stack) -> None:
    text = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    [shown] = re.findall(r"<!-- roofline -->\n```\n\$ stack (.*)\n…\n((?:.*\n)*?)```\n<!-- /roofline -->", text)
    assert stack(*shown[0].split()).out.endswith(f"\n\n{shown[1]}")


def test_recipes_side_by_side_each_once(stack: Stack) -> None:
    done = stack("roofline", RECIPE, "gpt-oss-120b-2-sparks", RECIPE, "--context", 100, "--batch", 1, "--batch", 8)
    assert "on 2 x NVIDIA DGX Spark (GB10), each 273 GB/s" in done.out
    limits = done.out.partition("\nrecipe ")[2]
    assert re.findall(r"^(gpt-oss-\S+) +(\d+) +(\d+) ", limits, re.MULTILINE) == [
        (RECIPE, "100", "1"),
        (RECIPE, "100", "8"),
        ("gpt-oss-120b-2-sparks", "100", "1"),
        ("gpt-oss-120b-2-sparks", "100", "8"),
    ]
    assert "8 requests at once" in done.out


def test_steps_of_several_requests(stack: Stack) -> None:
    found = stack("roofline", RECIPE, "--steps", "--batch", 8, "--context", 0).out.rpartition("one change at a time")[2]
    assert found.startswith(", 8 requests at once: tokens a second at most")
    # Without a context there are weights only, and no cache to change.
    rows = re.findall(r" (\d+\.\d) +(\d+\.\d)$", found, re.MULTILINE)
    assert [row[0] for row in rows] == [row[1] for row in rows] != []
    assert float(rows[0][0]) > 53


def test_a_bandwidth_of_ones_own(stack: Stack) -> None:
    assert "NVIDIA H200, 4260 GB/s (as named)" in stack("roofline", RECIPE, "--hardware", "h200", "--bandwidth", 4260).out
    assert "4800 GB/s (NVIDIA's data sheet; copies reach" in stack("roofline", RECIPE, "--hardware", "h200").out


def test_json(stack: Stack) -> None:
    said = json.loads(stack("roofline", RECIPE, "--hardware", "h200", "--bandwidth", 4260, "--json").out)
    [one] = said["rooflines"]
    assert (one["recipe"], one["model"], one["hardware"], one["nodes"]) == (RECIPE, "gpt-oss-120b", "h200", 1)
    assert (one["bandwidth"], one["moe"], one["steps"]) == (4.26e12, "MARLIN", None)
    assert [point["context"] for point in one["points"]] == [512, 2048, 8192]
    first = one["points"][0]
    assert sum(part["bytes"] for part in first["components"]) == first["bytes"]
    assert first["seconds"] == pytest.approx(first["bytes"] / 4.26e12)
    assert first["limit"] == pytest.approx(1 / first["seconds"])
    assert {each["share"] for each in first["measured"]} == {each["decode"] / first["limit"] for each in first["measured"]}
    assert first["measured"]
    steps = json.loads(stack("roofline", RECIPE, "--steps", "--json").out)["rooflines"][0]["steps"]
    assert steps[-1]["title"] == "KV in FP8"
    assert steps[0]["points"][0]["bytes"] > steps[0]["weights"]


def test_a_picture(stack: Stack, tmp_path: Path) -> None:
    assert stack("roofline", RECIPE, "--png", tmp_path / "one.svg").code == 0
    assert "97.5" in (tmp_path / "one.svg").read_text()


def test_no_stack_is_needed(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert stack("roofline", RECIPE, root=None).code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["missing"], "unknown recipe 'missing'"),
        ([RECIPE, "--hardware", "toaster"], "unknown hardware 'toaster'"),
        ([RECIPE, "--context", "-1"], "--context -1 is out of range"),
        ([RECIPE, "--batch", "0"], "--batch 0 is out of range"),
        ([RECIPE, "--bandwidth", "nan"], "--bandwidth nan"),
        ([RECIPE, "--config", "/nowhere/config.json"], "/nowhere/config.json is missing"),
        ([RECIPE, "--png", "one.gif"], "neither .png nor .svg"),
        (["cpu-fp32"], "names no hardware"),
        (["cpu-fp32", "--hardware", "spark"], "--config config.json"),
        ([], "Missing argument"),
    ],
)
def test_refused(stack: Stack, args: list[str], said: str) -> None:
    assert said in stack("roofline", *args).refused()
