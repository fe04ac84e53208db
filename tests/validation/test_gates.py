# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model import stack
from stack.model.ids import Sha256
from stack.model.verdict import LIMIT, NAME, Gpu, Pinned, Verdict, Weights, bytes_of, write
from stack.validation import decode_goals, gates, signing
from stack.validation.gates import Release
from stack.validation.kernels import RELIED_ON
from stack.validation.numerics import SM120_ON_SM90, cases
from stack.validation.pack import case_names
from stack.validation.pack.recipes import of
from stack.validation.serve import checks
from stack.validation.serve.suite import NUMBERS

from .factories import CPU, CPU_GATE, RELEASE, SPARK, VERSIONS, failed, file, not_run, passed, verdict

GATES = f"""\
{CPU_GATE}
[sm121]
has = ["cpu", "sm121"]
[[sm121.cases]]
names = "kernels/*"
needs = "sm121"
least = 1
[[sm121.cases]]
names = "serve/*"
least = 1
weights = ["real", "dummy"]
"""
GOOD = (passed("kernels/one"), passed("kernels/two", "cpu"), not_run("kernels/far", "sm121"), passed("serve/chat", "cpu"))
SPARKS = (passed("kernels/far", "sm121"), passed("serve/chat"))


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    (tmp_path / "gates.toml").write_text(GATES)
    return tmp_path / "gates.toml"


def problems(toml: Path, *verdicts: Verdict, gate: str = "cpu", release: Release = RELEASE) -> tuple[str, ...]:
    files = [file(toml.parent, f"{place}.json", one) for place, one in enumerate(verdicts)]
    found = gates.judge_files(gates.load(toml, gate), release, files).problems
    return tuple(problem.replace(f"{toml.parent}/", "") for problem in found)


def test_what_has_all_passes(toml: Path) -> None:
    assert problems(toml, verdict(*GOOD)) == ()
    assert problems(toml, verdict(*GOOD[:3]), verdict(GOOD[3])) == ()
    assert problems(toml, verdict(*SPARKS, machine=SPARK, weights=Weights.DUMMY), gate="sm121") == ()


def test_nothing_at_all_does_not_pass(toml: Path) -> None:
    needed = ("kernels/*: 0 passed, 2 are needed", "serve/*: 0 passed, 1 are needed")
    assert problems(toml, verdict()) == needed
    assert problems(toml) == needed


def test_a_case_counts_once(toml: Path) -> None:
    one = verdict(passed("kernels/one"), passed("serve/chat"))
    assert problems(toml, one, one) == ("kernels/*: 1 passed, 2 are needed",)


def test_a_failure_anywhere_stops_it(toml: Path) -> None:
    bad = verdict(failed("bench/slow"))
    assert problems(toml, verdict(*GOOD), bad) == ("1.json: bench/slow failed: it is wrong",)
    # It does not help that it passed elsewhere.
    assert problems(toml, verdict(*GOOD), verdict(failed("kernels/one"))) == ("1.json: kernels/one failed: it is wrong",)


def test_a_goal_of_speed_has_to_have_run_and_may_be_missed(toml: Path) -> None:
    toml.write_text(f'{GATES}[[cpu.cases]]\nnames = "bench/goal/*"\nleast = 2\nmissed = true\n')
    met, missed = passed("bench/goal/met"), failed("bench/goal/missed")
    assert problems(toml, verdict(*GOOD, met, missed)) == ()
    *_, goals = gates.judge_files(gates.load(toml, "cpu"), RELEASE, [toml.parent / "0.json"]).counts
    assert (goals.passed, goals.missed) == (1, 1)
    assert problems(toml, verdict(*GOOD, met)) == ("bench/goal/*: 1 ran, 2 are needed",)
    assert problems(toml, verdict(*GOOD, met, missed, not_run("bench/goal/third"))) == (
        "bench/goal/third was not run: no such machine",
    )
    assert problems(toml, verdict(*GOOD, met, missed, failed("bench/wrong"))) == ("0.json: bench/wrong failed: it is wrong",)
    *others, _ = gates.judge_files(
        gates.load(toml, "cpu"), RELEASE, [file(toml.parent, "0.json", verdict(failed("kernels/one")))]
    ).counts
    assert {count.missed for count in others} == {0}
    allowing = gates.digests(toml)["cpu"]
    toml.write_text(toml.read_text().replace("missed = true", "missed = false"))
    assert gates.digests(toml)["cpu"] != allowing


def test_of_the_decode_kernels_goals_the_gate_wants_all_that_one_run_measures() -> None:
    gate = gates.load(Path(__file__).parents[2] / gates.FILE, "sm90")
    names = ["bench/kernels/all", *(case_names.of_goal(goal.name) for goal in decode_goals.GOALS)]
    assert [name for name in names if not re.fullmatch(NAME, name)] == []
    measured = [name for name in names if not name.endswith("-flashinfer-sm90")]
    wanted = [one for one in gate.wanted if one.names.startswith("bench/kernels/")]
    for one in wanted:
        assert one.least == sum(fnmatchcase(name, one.names) for name in measured), one.names
        assert one.missed == (one.names != "bench/kernels/all")
    assert sum(one.least for one in wanted) == len(measured) == 21
    profiled = [recipe for recipe in of("sm90") if recipe.profiled]
    assert [one.least for one in gate.wanted if one.names == "bench/*/profile/512"] == [len(profiled)]


def test_what_this_machine_could_have_run_must_have_run(toml: Path) -> None:
    lazy = not_run("kernels/three", "cpu")
    assert problems(toml, verdict(*GOOD, lazy)) == ("kernels/three was not run: no such machine",)
    assert problems(toml, verdict(*GOOD, lazy), verdict(passed("kernels/three", "cpu"))) == ()
    assert "kernels/far was not run: no such machine" in problems(toml, verdict(*GOOD), gate="sm121")


def test_only_what_the_gate_wants_counts(toml: Path) -> None:
    assert problems(toml, verdict(passed("kernels/one"), passed("serve/chat"), machine=SPARK), gate="sm121") == (
        "kernels/* that need sm121: 0 passed, 1 are needed",
        "serve/* with real or dummy weights: 0 passed, 1 are needed",
    )
    tiny = verdict(*SPARKS, machine=SPARK, weights=Weights.TINY)
    assert problems(toml, tiny, gate="sm121") == ("serve/* with real or dummy weights: 0 passed, 1 are needed",)


def test_a_gpu_that_is_not_there_passes_nothing(toml: Path) -> None:
    claimed = verdict(*GOOD, passed("kernels/near", "sm121"), machine=CPU)
    assert problems(toml, claimed) == ("0.json: kernels/near passed without the sm121 that it needs",)


@pytest.mark.parametrize(
    "margins", [{}, {"good": 0.9, "nearest wrong output": 2.0}, {"good": 3.0, "nearest wrong output": 0.5}]
)
def test_a_kernel_that_passed_has_margins_that_say_so(toml: Path, margins: dict[str, float]) -> None:
    claimed = replace(passed("kernels/one"), margins=margins)
    said = "0.json: kernels/one passed, but its margins do not show it: each must be recorded, and be at least 1"
    assert problems(toml, verdict(claimed, *GOOD[1:])) == (said,)
    compiles = replace(passed("kernels/compile/mine"), margins={})
    assert problems(toml, verdict(*GOOD, compiles)) == ()


def test_of_several_gpus_one_is_enough(toml: Path) -> None:
    either = ("sm90", "sm121")
    good = (passed("kernels/far", "cpu", *either), passed("serve/chat"))
    assert problems(toml, verdict(*good, machine=SPARK, weights=Weights.REAL), gate="sm121") == ()
    claimed = verdict(*GOOD, passed("kernels/near", *either), machine=CPU)
    assert problems(toml, claimed) == ("0.json: kernels/near passed without the sm121 or sm90 that it needs",)
    lazy = verdict(*good, not_run("kernels/lazy", *either), machine=SPARK, weights=Weights.REAL)
    assert problems(toml, lazy, gate="sm121") == ("kernels/lazy was not run: no such machine",)
    other = verdict(*good, not_run("kernels/lazy", "avx2", *either), machine=SPARK, weights=Weights.REAL)
    assert problems(toml, other, gate="sm121") == ()


def test_another_stack_does_not_count(toml: Path) -> None:
    found = problems(toml, verdict(*GOOD), release=replace(RELEASE, stack=Sha256("b" * 64)))
    assert found[0] == "0.json is of the stack aaaaaaaaaaaa, this one is bbbbbbbbbbbb: validate this one"
    assert len(found) == 3  # and nothing of it counts


def test_another_gpu_is_not_the_one_that_a_gate_is_for(toml: Path) -> None:
    hopper = replace(SPARK, gpus=(replace(SPARK.gpus[0], capability="9.0"),))
    assert problems(toml, verdict(*SPARKS, machine=SPARK, weights=Weights.DUMMY), gate="sm121") == ()
    said = problems(toml, verdict(*SPARKS, machine=hopper, weights=Weights.DUMMY), gate="sm121")
    assert any("its machine has no sm121, which the gate sm121 requires" in one for one in said), said
    assert any("kernels/far passed without the sm121 that it needs" in one for one in said), said


def test_a_run_without_an_end_does_not_count(toml: Path) -> None:
    assert "did not finish" in problems(toml, verdict(*GOOD, whole=False))[0]


@pytest.mark.parametrize(
    ("old", "new"), [(b'"why": "no such', b'"why": "No such'), (b'"schema": 1', b'"schema": 2'), (b"}", b""), (b"", b"")]
)
def test_a_broken_file_is_one_line(toml: Path, old: bytes, new: bytes) -> None:
    path = file(toml.parent, "v.json", verdict(*GOOD))
    data = path.read_bytes()
    path.write_bytes(data.replace(old, new) if old else data[: len(data) // 2])
    found = gates.judge_files(gates.load(toml, "cpu"), RELEASE, [path]).problems
    assert found[0].startswith(str(path))
    assert len(found) == 3
    assert not any("\n" in problem for problem in found)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("least = 2", "least = 0", "least is 0: a gate that wants no case stops nothing"),
        ("least = 2", "least = -1", "whole number from 0"),
        ("least = 2", "", "least is missing"),
        ("least = 2", "least = 2\nmost = 3", "most is an unknown key"),
        ('["real", "dummy"]', '["good"]', "weights names 'good': known: real, dummy, tiny"),
        ('needs = "sm121"', 'needs = "SM 121"', "what a machine has to have"),
        ("[[cpu.cases]]", "[[gpu.cases]]", "cpu.cases is empty: a gate without a case stops nothing"),
    ],
)
def test_a_gate_that_cannot_stop_anything_is_refused(toml: Path, old: str, new: str, said: str) -> None:
    assert old in GATES
    toml.write_text(GATES.replace(old, new))
    with pytest.raises(StackError) as caught:
        gates.load(toml, "cpu")
    assert said in str(caught.value)


def test_an_unknown_gate_is_refused(toml: Path) -> None:
    with pytest.raises(StackError, match=r"unknown gate 'gpu': .* has cpu, sm121"):
        gates.load(toml, "gpu")


@pytest.mark.parametrize("name", ["cpu", "cpu-image", "sm90", "sm121"])
def test_ours_can_be_read_and_let_nothing_empty_through(name: str, tmp_path: Path) -> None:
    gate = gates.load(Path(__file__).parents[2] / gates.FILE, name)
    gpus = tuple(Gpu("any", f"{one[2:-1]}.{one[-1]}", None, "1") for one in gate.has if one.startswith("sm"))
    flags = tuple(sorted(one for one in gate.has if not one.startswith("sm")))
    capable = replace(CPU, flags=flags, gpus=gpus)
    found = gates.judge_files(gate, RELEASE, [file(tmp_path, "v.json", verdict(machine=capable))])
    assert len(found.problems) == len(gate.wanted)


def test_none_that_a_cpu_can_run_may_be_left_out() -> None:
    """A failure that --only leaves out would be one case less, and nothing else."""
    root = Path(__file__).parents[2]
    gate = gates.load(root / gates.FILE, "cpu")
    least = {one.names: one.least for one in gate.wanted}
    numerics = [one for one in cases.declared() if gate.has.issuperset(one.needs)]
    compiled = [one for series in stack.load(root).series for one in series.compiles if one.patch is not None]
    assert least["kernels/*"] == len(numerics) + len(compiled) + len(RELIED_ON)
    served = len({"starts", *checks.CHECKS, *NUMBERS})
    assert (least["serve/cpu-fp32/*"], least["serve/cpu-mxfp4/*"]) == (served, served)
    # In an image, all of it but what is compared with a package that images do not have.
    inside = {one.names: one.least for one in gates.load(root / gates.FILE, "cpu-image").wanted}
    kernels = sum(count for names, count in inside.items() if names.startswith("kernels/"))
    assert kernels == least["kernels/*"] - sum(one.name.endswith("/ml_dtypes") for one in numerics)
    assert {names: count for names, count in inside.items() if names in least} == {
        names: count for names, count in least.items() if names.startswith("serve/")
    }


def test_of_the_kernels_on_a_gpu_each_gate_wants_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SM120_ON_SM90, "their library")  # SM120's kernels emulated are declared where it is named
    for name in ("sm90", "sm121"):
        for one in gates.load(Path(__file__).parents[2] / gates.FILE, name).wanted:
            declared = [case for case in cases.declared() if fnmatchcase(case.name, one.names) and one.needs in case.needs]
            if one.names.startswith("kernels/"):
                assert one.least == len(declared) > 0, (name, one.names)


def key(folder: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder / name


def test_a_signature_is_asked_for_where_signers_are_named(toml: Path) -> None:
    ours, theirs = key(toml.parent, "ours"), key(toml.parent, "theirs")
    signers = toml.parent / "allowed_signers"
    signers.write_text(f'ada@example.org namespaces="{signing.NAMESPACE}" {ours.with_suffix(".pub").read_text()}')
    path = file(toml.parent, "v.json", verdict(*GOOD))

    def first() -> str:
        found = gates.judge_files(gates.load(toml, "cpu"), RELEASE, [path], signers).problems
        return found[0].replace(f"{toml.parent}/", "") if found else ""

    assert first().startswith("v.json is not signed: sign it")
    signing.sign(path, theirs)
    assert first().startswith("v.json is not signed by anyone in allowed_signers")
    signature = signing.sign(path, ours)
    assert first() == ""
    assert signing.verify(path, path.read_bytes(), signers) == "ada@example.org"
    # The signature of another verdict, one for another purpose, and a broken one.
    file(toml.parent, "v.json", verdict(*GOOD, passed("kernels/more")))
    assert first().startswith("the signature of v.json does not hold")
    signature.unlink()
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", ours, path], check=True)
    assert first() != ""
    signature.write_text("nothing of the kind")
    assert first() != ""


def test_a_key_for_something_else_says_what_to_mend(toml: Path) -> None:
    ours, signers = key(toml.parent, "ours"), toml.parent / "allowed_signers"
    public = ours.with_suffix(".pub").read_text()
    signers.write_text(f'ada@example.org namespaces="git" {public}bob@example.org namespaces="{signing.NAMESPACE}" {public}')
    path = file(toml.parent, "v.json", verdict(*GOOD))
    signing.sign(path, ours)
    (found,) = (
        one for one in gates.judge_files(gates.load(toml, "cpu"), RELEASE, [path], signers).problems if "signature" in one
    )
    assert 'not permitted for use in signature namespace "stack-verdict"' in found
    assert found.endswith(f"or give its key one name in {signers}")
    signers.write_text(signers.read_text().replace("bob", "ada"))
    assert gates.judge_files(gates.load(toml, "cpu"), RELEASE, [path], signers).problems == ()


def test_what_is_judged_is_what_was_signed(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is another each time it is read must not show the signature one, and the gate the other."""
    ours, signers = key(toml.parent, "ours"), toml.parent / "allowed_signers"
    signers.write_text(f"ada@example.org {ours.with_suffix('.pub').read_text()}")
    path = file(toml.parent, "v.json", verdict(failed("kernels/one")))
    signing.sign(path, ours)
    signed, gate = path.read_bytes(), gates.load(toml, "cpu")
    path.write_bytes(write(verdict(*GOOD)))
    monkeypatch.setattr(Path, "read_bytes", lambda _: signed)
    assert gates.judge_files(gate, RELEASE, [path], signers).problems[0].startswith("the signature of")


def test_a_key_that_is_none_is_one_line(toml: Path) -> None:
    with pytest.raises(StackError, match=r"was not signed"):
        signing.sign(toml, toml)


WHOLE_GATE = """\
[cpu]
has = ["cpu", "avx512_bf16"]
[[cpu.cases]]
names = "kernels/*"
least = 2
needs = "cpu"
weights = ["real"]
[[cpu.cases]]
names = "bench/*"
least = 1
missed = true
"""


@pytest.mark.parametrize(
    ("asked", "weaker"),
    [
        ('["cpu", "avx512_bf16"]', '["cpu"]'),
        ("kernels/*", "*"),
        ("least = 2", "least = 1"),
        ('needs = "cpu"\n', ""),
        ('needs = "cpu"', 'needs = "sm90"'),
        ('weights = ["real"]\n', ""),
        ('["real"]', '["real", "tiny"]'),
        ("missed = true", "missed = false"),
        ("[cpu]", "[gpu]"),
    ],
)
def test_a_gate_that_asks_for_something_else_has_another_digest(tmp_path: Path, asked: str, weaker: str) -> None:
    assert asked in WHOLE_GATE
    (strong, weak) = (tmp_path / "strong.toml", tmp_path / "weak.toml")
    strong.write_text(WHOLE_GATE)
    weak.write_text(WHOLE_GATE.replace("cpu", "gpu") if asked == "[cpu]" else WHOLE_GATE.replace(asked, weaker, 1))
    assert set(gates.digests(strong).values()).isdisjoint(gates.digests(weak).values())


def test_a_gates_digest_is_of_what_it_asks_for(toml: Path) -> None:
    before = gates.digest(gates.load(toml, "cpu"))
    toml.write_text("# a comment\n" + toml.read_text())
    assert gates.digest(gates.load(toml, "cpu")) == before
    weaker = toml.read_text().replace("least = 2", "least = 1", 1)
    assert weaker != toml.read_text()
    toml.write_text(weaker)
    assert gates.digest(gates.load(toml, "cpu")) != before
    inside = replace(verdict(*GOOD), image=f"sha256:{'b' * 64}", gates=gates.digests(toml))
    assert inside.gates["cpu"] == gates.digest(gates.load(toml, "cpu"))
    assert inside.image == f"sha256:{'b' * 64}"


SOUND = verdict(*GOOD, versions={**VERSIONS, "vllm": "0.32.0"})
SM121 = "0.32.0+sm121.gaaaaaaaa"
WITH_PACKAGES = replace(RELEASE, packages={"vllm": "0.32.0"})


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        (replace(SOUND, pins={"vllm": Pinned("0000000", "v0.32.0")}), "it pins vllm at v0.32.0 (0000000)"),
        (replace(SOUND, pins={"vllm": Pinned("5df63a720", None)}), "it pins vllm at None"),
        (replace(SOUND, pins={}), "it does not pin vllm"),
        (replace(SOUND, pins={**SOUND.pins, "mine": Pinned("5df63a720")}), "it pins mine, this stack does not"),
        (replace(SOUND, versions={}), "it was made by stack unknown"),
        (replace(SOUND, versions={**VERSIONS, "validation": "0" * 12}), "it was made by validation 000000000000"),
        (replace(SOUND, versions={**VERSIONS, "stack": "0.0.1"}), "it was made by stack 0.0.1"),
        (replace(SOUND, versions={**VERSIONS, "vllm": "0.31.0"}), "vllm was 0.31.0, this stack pins 0.32.0"),
        (replace(SOUND, versions={**VERSIONS, "vllm": "0.32.0+sm121.gbbbbbbbb"}), "which is not of this stack (aaaaaaaa)"),
        (replace(SOUND, versions={**VERSIONS, "vllm": "0.32.0+mine"}), "which is not of this stack (aaaaaaaa)"),
        (replace(SOUND, machine=replace(CPU, cores=0)), "its machine has 0 cores"),
        (replace(SOUND, machine=replace(CPU, memory=0)), "0 bytes of memory"),
        (replace(SOUND, made="1970-01-01T00:00:00Z"), "before there were verdicts"),
        (replace(SOUND, made="2999-01-01T00:00:00Z"), "in the future"),
        (verdict(*GOOD, passed("kernels/wide", "cpu", "avx9")), "kernels/wide passed without the avx9 that it needs"),
    ],
)
def test_a_verdict_that_cannot_be_of_this_release_is_refused(toml: Path, forged: Verdict, said: str) -> None:
    assert problems(toml, SOUND, release=WITH_PACKAGES) == ()
    found = problems(toml, forged, release=WITH_PACKAGES)
    assert any(said in one for one in found), found


def test_a_machine_has_what_the_gates_machine_has(toml: Path) -> None:
    toml.write_text(toml.read_text().replace('has = ["cpu"]', 'has = ["cpu", "avx512f", "avx512_bf16"]', 1))
    assert problems(toml, SOUND) == ("0.json: its machine has no avx512f, which the gate cpu requires",)
    capable = replace(CPU, flags=("avx512f", *CPU.flags))
    assert problems(toml, replace(SOUND, machine=capable)) == ()


def test_a_gpus_kernels_are_those_of_this_stacks_wheels(toml: Path) -> None:
    ran = verdict(*SPARKS, machine=SPARK, weights=Weights.REAL)
    for versions in (VERSIONS, {**VERSIONS, "vllm": "0.32.0"}):
        found = problems(toml, replace(ran, versions=versions), gate="sm121", release=WITH_PACKAGES)
        assert [one for one in found if "not of this stack" in one], versions
    named = replace(ran, versions={**VERSIONS, "vllm": SM121})
    assert problems(toml, named, gate="sm121", release=WITH_PACKAGES) == ()


def test_without_signers_a_judgement_says_that_nothing_was_signed(toml: Path) -> None:
    path = file(toml.parent, "v.json", SOUND)
    assert not gates.judge_files(gates.load(toml, "cpu"), RELEASE, [path]).signed


@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT * 4])
def test_a_verdict_without_an_end_is_read_to_its_bound(toml: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = toml.parent / "v.json"
    path.write_bytes(b" " * size)
    assert len(bytes_of(path)) <= LIMIT + 1
    assert any("is larger than" in one for one in gates.judge_files(gates.load(toml, "cpu"), RELEASE, [path]).problems)
