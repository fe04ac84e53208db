# SPDX-License-Identifier: Apache-2.0
"""`stack doctor rules` lists, shows and tests the package's rules, the user's and the stack's; `stack doctor` uses all of them."""

from pathlib import Path

import platformdirs
import pytest

from stack.doctor.knowledge import load

from ..carry.world import World
from ..documented import keys, verb
from .conftest import Stack
from .test_verbs import parsed

RULE = """
[[rule]]
id = "{id}"
title = "the fan is loud"
means = "dust"
fix = "clean it"
any = ["fan is at <n> rpm"]
evidence = ["o/r#1"]
matches = ["the fan is at 9000 rpm"]
misses = ["the fan is at rest"]
"""
KEYS = verb("doctor-rules-show")


@pytest.fixture(name="own", autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of rules, which is empty."""
    monkeypatch.setattr(platformdirs, "user_config_dir", lambda *_: str(tmp_path / "config"))
    folder = tmp_path / "config/doctor/rules"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(name="of_stack")
def _of_stack(world: World) -> Path:
    file = world.root / "doctor/rules/fans.toml"
    file.parent.mkdir(parents=True)
    file.write_text(RULE.format(id="fan-loud"))
    return file


def test_list(stack: Stack, of_stack: Path, own: Path) -> None:
    (own / "mine.toml").write_text(RULE.format(id="fan-mine"))
    ran = stack("doctor", "rules", "list", "--json")
    rules = {one["id"]: one for one in parsed(ran)["rules"]}
    assert (rules["fan-loud"]["origin"], rules["fan-mine"]["origin"]) == ("stack", "user")
    assert len(rules) == len(load.builtin()) + 2
    assert {*rules["fan-loud"]} == KEYS
    shown = stack("doctor", "rules", "list")
    assert "the fan is loud" in shown.out
    assert f"{len(rules)} rules." in shown.out


def test_json_may_stand_before_the_subcommand(stack: Stack) -> None:
    assert {*parsed(stack("doctor", "--json", "rules", "show", "memory-taken"))} - {"schema"} == KEYS
    assert stack("doctor", "rules", "show", "memory-taken").out.startswith("memory-taken\n")


def test_show(stack: Stack) -> None:
    ran = stack("doctor", "rules", "show", "memory-taken")
    assert ran.code == 0
    for part in ("if CPU and GPU share it", "free -h", "certain", "memory.toml (package)"):
        assert part in ran.out
    assert {*parsed(stack("doctor", "rules", "show", "memory-taken", "--json"))} - {"schema"} == KEYS
    assert "did you mean 'memory-taken'" in stack("doctor", "rules", "show", "memory-takn").refused()


def test_test(stack: Stack, tmp_path: Path) -> None:
    ran = stack("doctor", "rules", "test", "--json")
    said = parsed(ran)
    assert (ran.code, said["passed"], said["failures"]) == (0, True, [])
    assert keys(said) <= verb("doctor-rules-test")
    assert said["slowest"]["milliseconds"] < 20_000
    file = tmp_path / "bad.toml"
    file.write_text(RULE.format(id="fan-loud").replace("at 9000 rpm", "at nine rpm"))
    failed = stack("doctor", "rules", "test", file)
    assert failed.code == 1
    assert "fan-loud: should match and does not: the fan is at nine rpm" in failed.out


def test_a_rule_that_is_not_whole_is_refused(stack: Stack, of_stack: Path) -> None:
    of_stack.write_text(RULE.format(id="fan-loud").replace('misses = ["the fan is at rest"]', ""))
    assert "misses is missing" in stack("doctor", "rules", "list").refused()
    of_stack.write_text(RULE.format(id="memory-taken"))
    assert "memory-taken is in memory.toml, too" in stack("doctor", "rules", "list").refused()


def test_the_stack_s_rules_find_something_and_are_named(stack: Stack, of_stack: Path, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("ERROR 01-17 10:00:00 [a.py:1] the fan is at 9000 rpm\n")
    ran = stack("doctor", "--log", log)
    assert ran.code == 1
    assert "the fan is loud [errors]\n      the fan is at 9000 rpm\n    dust. (a rule of " in ran.out
    assert "doctor/rules/fans.toml)" in ran.out
    assert "rule fan-loud (likely); seen in o/r#1" in ran.out


def test_the_kernel_s_log_facts_and_reports(stack: Stack, tmp_path: Path) -> None:
    log, kernel, facts = tmp_path / "x.log", tmp_path / "dmesg", tmp_path / "df"
    log.write_text(
        "(EngineCore pid=7) ERROR 01-17 10:00:00 [a.py:1] RuntimeError: the frobnicator of 10.0.7.12 is out of phase\n"
    )
    kernel.write_text("[Fri Jan 17 10:00:01 2026] Out of memory: Killed process 77 (VLLM::EngineCor) total-vm:1kB\n")
    facts.write_text("shm  65536  0  65536  0% /dev/shm\n")
    ran = stack("doctor", "--log", log, "--dmesg", kernel, "--facts", facts)
    assert f"{kernel}:1: " in ran.out
    assert "/dev/shm is small" in ran.out
    assert "first error (line 1)" not in ran.out
    reported = stack("doctor", "--log", log, "--report")
    assert "first error (line 1): RuntimeError: the frobnicator of <address> is out of phase" in reported.out
    assert "frobnicator of <address>" in parsed(stack("doctor", "--log", log, "--json"))["report"]


def test_fix_needs_a_script(stack: Stack) -> None:
    assert "--fix needs a script" in stack("doctor", "--fix").refused()
