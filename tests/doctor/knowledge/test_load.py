# SPDX-License-Identifier: Apache-2.0
"""Rules are data: a loader takes them from three places, refuses what is not whole, and their examples hold."""

import re
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import hardware, recipes
from stack.doctor import logs, rules
from stack.doctor.finding import Severity
from stack.doctor.knowledge import advice, check, load
from stack.doctor.knowledge.rule import Origin, Rule

WHOLE = """
[[rule]]
id = "fan-loud"
title = "the fan is loud"
means = "dust"
fix = "clean it"
any = ["fan is at <n> rpm"]
evidence = ["o/r#1"]
matches = ["the fan is at 9000 rpm"]
misses = ["the fan is at rest"]
"""


def read(folder: Path, text: str) -> list[Rule]:
    file = folder / "own.toml"
    file.write_text(text)
    return [*load.read(file, Origin.USER)]


def test_the_package_s_rules_hold_by_their_own_examples() -> None:
    rules = load.builtin()
    assert len(rules) >= 100
    assert [(each.rule.id, each.wanted, each.example) for each in check.failures(rules)] == []


def test_each_has_evidence_and_both_examples() -> None:
    for rule in load.builtin():
        assert rule.evidence, rule.id
        assert rule.matches, rule.id
        assert rule.misses, rule.id
        assert len(rule.title) < 140, rule.id


def test_one_rule(tmp_path: Path) -> None:
    (rule,) = read(tmp_path, WHOLE)
    assert (rule.id, rule.kind, rule.sure.value, rule.origin) == ("fan-loud", "log", "likely", Origin.USER)
    assert [*check.failures([rule])] == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('matches = ["the fan is at 9000 rpm"]', "", "matches is missing"),
        ('misses = ["the fan is at rest"]', "", "misses is missing"),
        ('evidence = ["o/r#1"]', "", "evidence names no source"),
        ('any = ["fan is at <n> rpm"]', "", "a rule looks at one kind"),
        ('any = ["fan is at <n> rpm"]', 'any = ["fan"]', "fewer than 4 letters"),
        ('fix = "clean it"', 'fix = "clean\\nit"', "has a line break"),
        ('id = "fan-loud"', 'id = "Fan"', "lower-case words"),
        ('id = "fan-loud"', 'id = "fan-loud"\nrun = "rm"', "is an unknown key"),
        ('id = "fan-loud"', 'id = "fan-loud"\nsince = "soon"', "it has to be a version"),
        ('id = "fan-loud"', 'id = "fan-loud"\nhardware = ["toaster"]', "known: spark"),
        ('id = "fan-loud"', 'id = "fan-loud"\nfacts = ["a > 1"]', "a rule looks at one kind"),
        ('id = "fan-loud"', 'id = "fan-loud"\nseverity = "bad"', "wrong or worth knowing"),
        ('fix = "clean it"', "fix = []", "fix is empty"),
        ('fix = "clean it"', 'fix = ["clean\\nit"]', "has a line break"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in WHOLE
    with pytest.raises(StackError, match=problem.replace("(", r"\(")):
        read(tmp_path, WHOLE.replace(old, new))


def test_an_example_that_does_not_hold(tmp_path: Path) -> None:
    (rule,) = read(tmp_path, WHOLE.replace("at rest", "at 1 rpm"))
    assert [(each.wanted, each.example) for each in check.failures([rule])] == [(False, "the fan is at 1 rpm")]


def test_rules_of_a_stack_and_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    root, own = tmp_path / "stack", tmp_path / "config/stack"
    for folder, name in ((root, "stack-rule"), (own, "my-rule")):
        (folder / load.BELOW).mkdir(parents=True)
        (folder / load.BELOW / "a.toml").write_text(WHOLE.replace("fan-loud", name))
    found = {rule.id: rule.origin for rule in load.load(root)}
    assert (found["stack-rule"], found["my-rule"]) == (Origin.STACK, Origin.USER)
    assert "stack-rule" not in {rule.id for rule in load.load(None)}


def test_no_rule_takes_another_s_place(tmp_path: Path) -> None:
    (tmp_path / load.BELOW).mkdir(parents=True)
    (tmp_path / load.BELOW / "a.toml").write_text(WHOLE.replace("fan-loud", "out-of-memory"))
    with pytest.raises(StackError, match="give it another id"):
        load.load(tmp_path)


def test_a_stack_s_rules_are_not_followed_elsewhere(tmp_path: Path) -> None:
    (tmp_path / load.BELOW).mkdir(parents=True)
    elsewhere = tmp_path / "x.toml"
    elsewhere.write_text(WHOLE)
    (tmp_path / load.BELOW / "a.toml").symlink_to(elsewhere)
    with pytest.raises(StackError, match="is a link"):
        load.load(tmp_path)


def test_too_large_a_file(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="larger than 256 KiB"):
        read(tmp_path, WHOLE + "#" * 2**18)


SETTINGS = WHOLE.replace('any = ["fan is at <n> rpm"]\n', "") + '[rule.settings]\nflags = ["--fan"]\n'


@pytest.mark.parametrize(
    "edit",
    [
        'replace = ["--fan 1; rm x"]',
        'replace = ["--fan $(rm x)"]',
        'replace = ["FAN=1"]',
        'replace = ["--fan --host=0.0.0.0"]',
        'replace = ["--fan=--host"]',
        'append = ["--seed -x"]',
        "append = [\"--fan 'a b'\"]",
        'append = ["--fan a b"]',
        'append = ["fan"]',
        'remove = ["--fan 1"]',
        'remove = ["a; b"]',
    ],
)
def test_what_fix_cannot_write_is_refused_when_it_is_loaded(tmp_path: Path, edit: str) -> None:
    with pytest.raises(StackError, match=r"own\.toml: rule\[0\]\.settings.*it has to be"):
        read(tmp_path, SETTINGS + edit)


def test_what_fix_can_write(tmp_path: Path) -> None:
    plain = """replace = ["--fan 0.8", '--fan {"a":[1]}', "--fan=x"]\nremove = ["--fan", "FAN"]\nappend = ["--fan"]"""
    (rule,) = read(tmp_path, SETTINGS + plain)
    assert rule.settings is not None
    assert len(rule.settings.replace) == 3


def test_what_is_set_already_is_not_advised(tmp_path: Path) -> None:
    ways = 'fix = ["lower --a", "use --kv-cache-dtype fp8", "add --eager", "--moe-backend marlin, then --c"]'
    (rule,) = read(tmp_path, WHOLE.replace('fix = "clean it"', ways))
    assert rule.fix == "lower --a; or use --kv-cache-dtype fp8; or add --eager; or --moe-backend marlin, then --c"
    assert advice.advice(rule, {}) == rule.fix
    assert (
        advice.advice(rule, {"kv-cache-dtype": "fp8_e4m3", "a": "1"})
        == "lower --a; or add --eager; or --moe-backend marlin, then --c"
    )
    assert advice.advice(rule, {"kv-cache-dtype": "auto", "eager": "True", "moe-backend": "MARLIN"}) == (
        "lower --a; or use --kv-cache-dtype fp8"
    )
    (only,) = read(tmp_path, WHOLE.replace('fix = "clean it"', 'fix = "use --kv-cache-dtype fp8"'))
    assert advice.advice(only, {"kv-cache-dtype": "fp8"}) == only.fix


def test_a_rule_says_that_vllm_never_started(tmp_path: Path) -> None:
    given = read(tmp_path, WHOLE.replace('means = "dust"', 'means = "dust"\nbefore_start = true'))
    found = [*logs.look(logs.of("the fan is at 9000 rpm\n", rules=given), "log")]
    assert [one.found.what for one in found if one.check == "start"] == [
        "its container did not start, so there is no start of vLLM in it"
    ]
    other = [*logs.look(logs.of("the fan is at 9000 rpm\n", rules=read(tmp_path, WHOLE)), "log")]
    assert "no start of vLLM" in other[0].found.what
    assert other[0].severity is Severity.UNKNOWN


UNIFIED = re.compile(r"--gpu-memory-utilization \(?(?:a DGX Spark: )?(0\.[0-9]+)")


def test_one_number_is_advised_for_shared_memory() -> None:
    said = {(rule.id, float(share)) for rule in load.builtin() for share in UNIFIED.findall(rule.fix)}
    assert said
    assert {share for _, share in said} == {rules.UNIFIED}
    for recipe in recipes.known():
        made = recipes.load(recipe)
        if made.hardware is not None and hardware.load(made.hardware.name).unified:
            shares = made.arguments[made.arguments.index("--gpu-memory-utilization") + 1 :][:1]
            assert shares, recipe
            assert float(shares[0]) <= rules.UNIFIED, recipe
    (spark,) = rules.utilization(0.95, 128 * 10**9, None)
    assert spark.fix == f"--gpu-memory-utilization {rules.UNIFIED:g}"
    assert [found.severity for found in rules.utilization(rules.UNIFIED, 128 * 10**9, None)] == [Severity.FINE]


@pytest.mark.parametrize(("share", "advised"), [("0.9", False), ("0.85", False), ("0.7", True), ("", True), ("x", True)])
def test_a_flag_at_its_bound_is_not_to_be_raised(share: str, advised: bool) -> None:
    (rule,) = (rule for rule in load.builtin() if rule.id == "context-too-long")
    said = advice.advice(rule, {"gpu-memory-utilization": share} if share else {})
    assert ("raise --gpu-memory-utilization" in said) is advised
    assert "lower --max-model-len" in said


def test_a_share_that_is_vllm_s_default_is_called_so() -> None:
    for share, is_default in ((rules.DEFAULT, True), (0.95, False)):
        (found,) = rules.utilization(share, 128 * 10**9, None)
        assert found.what.startswith("vLLM's default, --gpu-memory-utilization 0.92 leaves") is is_default


@pytest.mark.parametrize(
    "edit",
    [
        'append = ["--worker-cls evil.Worker"]',
        'append = ["--worker_cls=evil.Worker"]',
        'append = ["--worker-cl evil.Worker"]',
        'append = ["--trust-remote-code"]',
        'append = ["--allowed-local-media-path /"]',
        'replace = ["--host 0.0.0.0"]',
        'replace = ["--host=0.0.0.0"]',
        'append = ["--hf-token x"]',
        'append = ["--model evil/Model"]',
        """append = ['--compilation-config {"backend":"evil.backend"}']""",
        'append = ["--compilation-config.backend evil.backend"]',
        'remove = ["--api-key"]',
        'remove = ["--host"]',
        'remove = ["VLLM_API_KEY"]',
    ],
)
def test_a_rule_of_a_checkout_neither_loads_code_nor_opens_the_server(tmp_path: Path, edit: str) -> None:
    """`--fix` writes what rules say, and a checkout's rules come from somebody else."""
    for origin in (Origin.USER, Origin.STACK):
        file = tmp_path / "own.toml"
        file.write_text(f"{SETTINGS}{edit}\n")
        with pytest.raises(StackError, match="leave it to a person"):
            [*load.read(file, origin)]
    assert [*load.read(file, Origin.PACKAGE)]


def test_a_key_is_not_replaced_by_a_rule_of_a_checkout(tmp_path: Path) -> None:
    text = SETTINGS.replace('flags = ["--fan"]', 'flags = ["--api-key"]')
    assert read(tmp_path, text)
    with pytest.raises(StackError, match="leave it to a person"):
        read(tmp_path, text + 'replace = ["--seed 1"]\n')


def test_a_negative_number_is_a_value(tmp_path: Path) -> None:
    (rule,) = read(tmp_path, SETTINGS + 'append = ["--seed -1"]\n')
    assert rule.settings is not None and rule.settings.append == ("--seed -1",)
