# SPDX-License-Identifier: Apache-2.0
import json
import re
import shutil
from pathlib import Path

import pytest

from stack.serving import measured

from ..deploy.shapes.configs import LLAMA, QWEN3_MOE
from .conftest import Stack

RECIPE = "gpt-oss-120b-spark"
NVFP4 = "qwen3-6-35b-a3b-nvfp4-spark"


def test_components_limits_and_what_was_measured(stack: Stack) -> None:
    done = stack("roofline", RECIPE)
    assert (done.code, done.err) == (0, "")
    where = "232 GB/s (measured: a kernel that only reads reached 231 to 234, antirez/ds4 issue 773; the data sheet says 273)"
    assert f"{RECIPE}: gpt-oss-120b on NVIDIA DGX Spark (GB10), {where}" in done.out
    assert re.search(r"^experts +MXFP4, 4 of 128, 2880 x 2944 +1\.946 +8\.39 +69\.5% +68\.8% +66\.2%$", done.out, re.MULTILINE)
    assert re.search(rf"^{RECIPE} +512 +1 +2\.799 +12\.07 +82\.9 +97\.5$", done.out, re.MULTILINE)
    # Each source is a note, to which the rows of its contexts refer. The first context has what was published without one.
    assert done.out.count("llama.cpp on one DGX Spark") == done.out.count("the fork's container on one DGX Spark") == 1
    [fork, unstated] = [re.search(rf"^\[(\d)\] {name}", done.out, re.MULTILINE) for name in ("the fork's", "llama.cpp")]
    assert fork is not None
    assert unstated is not None
    assert re.findall(rf"^{RECIPE} +(\d+) .* \[{fork[1]}\]$", done.out, re.MULTILINE) == ["512", "2048", "8192"]
    assert re.findall(rf"^{RECIPE} +(\d+) .* \[{unstated[1]}\]$", done.out, re.MULTILINE) == ["512"]
    assert "one change at a time" not in done.out
    assert "is wrong" not in done.out


def test_the_steps(stack: Stack) -> None:
    found = stack("roofline", RECIPE, "--steps").out.rpartition("one change at a time")[2]
    assert re.findall(r"^(\+ )?(?:as|qkv|lm_head|experts|KV) .*? (\d\.\d{3}) +([\d.]+) +([\d.]+)", found, re.MULTILINE) == [
        ("", "5.171", "22.29", "44.9"),
        ("+ ", "3.768", "16.24", "61.6"),
        ("+ ", "2.917", "12.58", "79.5"),
        ("+ ", "2.831", "12.20", "82.0"),
        ("+ ", "2.788", "12.02", "83.2"),
        ("+ ", "2.788", "12.02", "83.2"),
    ]


def test_the_documentation_has_these_numbers(stack: Stack) -> None:
    text = (Path(__file__).parents[2] / "docs/roofline.md").read_text()
    [shown] = re.findall(r"<!-- roofline -->\n```\n\$ stack (.*)\n…\n((?:.*\n)*?)```\n<!-- /roofline -->", text)
    assert stack(*shown[0].split()).out.endswith(f"\n\n{shown[1]}")


def test_recipes_side_by_side_each_once(stack: Stack) -> None:
    done = stack("roofline", RECIPE, "gpt-oss-120b-2-sparks", RECIPE, "--context", 100, "--batch", 1, "--batch", 8)
    assert "on 2 x NVIDIA DGX Spark (GB10), each 232 GB/s" in done.out
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
    assert float(rows[0][0]) > 45


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
    assert "82.9" in (tmp_path / "one.svg").read_text()


def test_what_is_kept_is_below_the_limit_of_what_it_says_it_is(stack: Stack) -> None:
    assert json.loads(stack("roofline", RECIPE, "--steps", "--json").out)["rooflines"][0]["contradictions"] == []


def test_a_speed_above_its_limit_is_not_shown_without_a_word(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release's 59 tok/s, where the bytes of that release allow 44.7."""
    shutil.copytree(measured._KEPT / "baselines", tmp_path / "kept/baselines")
    file = tmp_path / "kept/baselines/marlin-one-spark.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("source")]
    file.write_text("\n".join(["source = 'a release'", "released = true", *lines]))
    monkeypatch.setattr(measured, "_KEPT", tmp_path / "kept")
    words = "One of both is wrong: 59.0 tok/s were measured (a release"
    shown = " ".join(stack("roofline", RECIPE, "--steps", "--png", tmp_path / "one.svg").out.split())
    assert f"{words}, 2026-03-19, llama-benchy), and at most 44.7 (52.6 by" in shown
    drawn = (tmp_path / "one.svg").read_text()
    assert words in drawn
    assert "above a limit that is shown: one of both is wrong" in drawn
    [found] = json.loads(stack("roofline", RECIPE, "--steps", "--json").out)["rooflines"][0]["contradictions"]
    assert (found["decode"], round(found["limit"], 1), round(found["sheet_limit"], 1)) == (59, 44.7, 52.6)
    assert found["of"].startswith("`as released: dense layers in BF16")
    # A limit of the recipe itself: this memory is too slow for what was published.
    slow = stack("roofline", RECIPE, "--bandwidth", 160, "--context", 2048, "--json").out
    points = json.loads(slow)["rooflines"][0]["points"]
    assert {one["decode"] for one in points[0]["measured"] if one["above"]} == {61.62, 59.36, 58, 59}
    assert len(json.loads(slow)["rooflines"][0]["contradictions"]) == 4
    assert stack("roofline", RECIPE, "--bandwidth", 160, "--context", 2048).out.count("One of both is wrong") == 4
    assert json.loads(stack("roofline", RECIPE, "--json").out)["rooflines"][0]["contradictions"] == []


def test_at_80_columns(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACK_COLUMNS", "80")
    for arguments in ((RECIPE, "--steps"), (NVFP4, "--acceptance", 0.6, "--batch", 8), ("gpt-oss-120b-h200", RECIPE)):
        assert max(map(len, stack("roofline", *arguments).out.splitlines())) <= 80


def test_a_model_in_nvfp4_with_drafts(stack: Stack) -> None:
    plain = stack("roofline", NVFP4, "--context", 2048).out
    assert "note: the recipe drafts 3 tokens a step: --acceptance counts drafts, this is without them" in plain
    assert re.search(r"^experts +NVFP4, 8 of 256 ", plain, re.MULTILINE)
    assert re.search(r"^state +read and written ", plain, re.MULTILINE)
    said = json.loads(stack("roofline", NVFP4, "--context", 2048, "--acceptance", 0.5, "--json").out)["rooflines"][0]
    assert said["drafts"] == {"count": 3, "acceptance": 0.5, "tokens": 1.875, "counted": True}
    [point] = said["points"]
    assert point["limit"] == pytest.approx(1.875 / point["seconds"])
    assert [part["format"] for part in point["components"] if part["name"] == "experts"] == ["NVFP4, 30.5 of 256"]
    known = stack("roofline", RECIPE, "--drafts", 2, "--acceptance", 0.7).out
    assert "2 drafts a step, each accepted with 70%: 2.19 tokens a step and request" in known
    assert "the draft's own bytes are not known and not counted" in known


def test_a_configuration_without_a_recipe(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    arguments = ("roofline", "--config", file, "--hardware", "spark", "--context", 100)
    one, two = (
        json.loads(stack(*arguments, "--nodes", nodes, "--kv-cache-dtype", "fp8", "--json").out)["rooflines"][0]
        for nodes in (1, 2)
    )
    assert (one["recipe"], one["model"], one["moe"], two["nodes"]) == (None, str(file), None, 2)
    assert two["points"][0]["bytes"] == one["points"][0]["bytes"] / 2
    assert one["points"][0]["components"][-1] == {"name": "KV", "format": "FP8", "bytes": 25600.0, "seconds": 25600 / 232e9}
    odd = file.rename(tmp_path / "x\x1b[31m.json")
    shown = stack(*arguments[:2], odd, *arguments[3:], "--steps").out
    assert "\x1b" not in shown
    assert shown.count("x\\x1b[31m.json") == 3
    assert "no steps, which are known for gpt-oss without drafts only" in shown


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
        ([RECIPE, "--kv-cache-dtype", "fp8"], "--kv-cache-dtype is for --config without a recipe"),
        ([RECIPE, "--nodes", "0"], "--nodes 0 is out of range"),
        ([RECIPE, "--nodes", "5"], "cannot be divided among 5 nodes"),
        ([NVFP4, "--nodes", "3"], "cannot be divided among 3 nodes"),
        ([RECIPE, "--drafts", "3"], "--drafts without --acceptance: name the share"),
        ([RECIPE, "--drafts", "99", "--acceptance", "0.5"], "--drafts 99 is out of range"),
        ([RECIPE, "--drafts", "3", "--acceptance", "nan"], "--acceptance nan is out of range"),
        ([RECIPE, "--acceptance", "0.5"], "--acceptance without --drafts: recipe gpt-oss-120b-spark drafts nothing"),
        ([NVFP4, "--context", "262145"], "--context 262145 is out of range"),
    ],
)
def test_refused(stack: Stack, args: list[str], said: str) -> None:
    assert said in stack("roofline", *args).refused()


def test_a_model_that_does_not_fit_is_told(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    large = LLAMA | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80}
    for values, fits in (
        (large, False),
        (LLAMA, True),
        (QWEN3_MOE | {"num_experts": 800_000, "num_experts_per_tok": 2}, False),
    ):
        file.write_text(json.dumps(values))
        told = stack("roofline", "--config", file, "--hardware", "spark")
        assert ("note: it does not fit: " in told.out) is not fits
        [one] = json.loads(stack("roofline", "--config", file, "--hardware", "spark", "--json").out)["rooflines"]
        assert (one["fits"], one["memory"], "it does not fit" in "".join(one["notes"])) == (fits, 128e9, not fits)
        assert (one["weights"] > 128e9) is not fits
    file.write_text(json.dumps(large))
    assert "does not fit" not in stack("roofline", "--config", file, "--hardware", "spark", "--nodes", 2).out


def test_without_a_recipe_the_table_names_models(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    told = stack("roofline", "--config", tmp_path / "config.json", "--hardware", "spark").out
    assert re.search(r"^model +context +requests", told, re.MULTILINE)
    assert not re.search(r"^recipe ", told, re.MULTILINE)


def test_the_file_is_looked_at_first(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    for path, problem in (
        (tmp_path / "none", "none is missing: name the config.json of a checkpoint"),
        (tmp_path, f"is a folder: name its config.json: --config {tmp_path / 'config.json'}"),
    ):
        told = stack("roofline", "--config", path)
        assert (told.code, problem in told.err, told.err.count("\n")) == (2, True, 1)
