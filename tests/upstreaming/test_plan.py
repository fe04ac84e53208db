# SPDX-License-Identifier: Apache-2.0
"""Plans of small forks: what stands alone, what waits and why, what has landed, what needs a person; and how it is shown."""

import itertools
import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stack.base.errors import StackError
from stack.carry.outcome import Outcome
from stack.cli import cli
from stack.proof.series_proofs import ProofState
from stack.store import git
from stack.upstreaming.plan import Wanted, plans
from stack.upstreaming.proposal import Proposal, UpstreamPlan
from stack.upstreaming.splitting import By

from .fork import Change, Files, Fork, fork

PYTHON = Path(sys.executable)
PROOF = """
import up.calc

def test_total():
    assert up.calc.total(2, 3) == 5

def test_half():
    assert up.calc.half(4) == 2

def test_one():
    assert up.calc.ONE == 1
"""


def lines(name: str, changed: dict[int, str] | None = None, *, more: str = "") -> bytes:
    text = [(changed or {}).get(number, f"{name}_{number} = {number}") for number in range(30)]
    return ("\n".join(text) + "\n" + more).encode()


BASE: Files = {
    "up/__init__.py": b"",
    "up/calc.py": b"ONE = 1\n" + lines("calc"),
    "up/main.py": lines("main"),
    "docs/use.md": b"# Use\n",
}
TOTAL = b"ONE = 1\n" + lines("calc", more="\n\ndef total(a, b):\n    return a + b\n")


def planned(made: Fork, onto: str = "v1.1", **wanted: object) -> UpstreamPlan:
    with made.stores() as stores:
        (plan,) = plans(stores, Wanted(onto={"up": onto}, **({"tests": False} | wanted)))  # type: ignore[arg-type]
    return plan


def by_slug(plan: UpstreamPlan) -> dict[str, Proposal]:
    return {one.slug: one for one in plan.proposals}


def run(made: Fork, *args: str) -> Result:
    return CliRunner().invoke(
        cli,
        ["--root", str(made.root), "--cache", str(made.cache), "export-pr", "--source", "git", *args],
        standalone_mode=False,
    )


@pytest.fixture
def small(tmp_path: Path) -> Fork:
    """One patch by itself, one that adds a function, one that imports it, one that changes a line of the first."""
    changes = [
        Change("one", "change-main", {"up/main.py": lines("main", {10: "main_10 = 'ours'"})}),
        Change("one", "add-a-total", {"up/calc.py": TOTAL}),
        Change("two", "use-the-total", {"up/new.py": b"from up.calc import total\n\nSUM = total(1, 2)\n"}),
        Change("two", "change-main-again", {"up/main.py": lines("main", {10: "main_10 = 'ours, again'"})}),
    ]
    later = {"up/main.py": b"# new\n" + lines("main"), "README": b"later\n"}
    return fork(tmp_path, BASE, changes, {"v1.1": later})


def test_what_stands_alone_and_what_waits(small: Fork) -> None:
    plan = planned(small)
    assert [[one.name for one in wave] for wave in plan.waves] == [
        ["up/one-change-main", "up/one-add-a-total"],
        ["up/two-use-the-total", "up/two-change-main-again"],
    ]
    found = by_slug(plan)
    assert found["use-the-total"].needs == ("up/one-add-a-total",)
    assert "total" in found["use-the-total"].why[0]
    assert found["change-main-again"].why == ("stands on its lines in up/main.py",)
    assert all(one.real and one.base == small.remote.git("rev-parse", "v1.1") for one in plan.proposals)
    assert found["change-main"].branch == "pr/up/one-change-main"
    # As it stands upstream, which has one line more above.
    assert b"@@ -9,7 +9,7 @@" in found["change-main"].parts[0].patch.diff


def test_the_default_branch_is_the_default_target(small: Fork) -> None:
    with small.stores() as stores:
        (plan,) = plans(stores, Wanted(tests=False))
    commit = small.remote.git("rev-parse", "main")
    assert plan.base == commit
    assert run(small, "--no-tests").output.startswith(f"up {commit[:12]}\n")
    assert run(small, "--no-tests", "--onto", "v1.1").output.startswith(f"up v1.1 ({commit[:12]})\n")


def test_only_some_series_and_what_they_need(small: Fork) -> None:
    assert [one.slug for one in planned(small, series=("two",)).proposals] == [
        "change-main",
        "add-a-total",
        "use-the-total",
        "change-main-again",
    ]
    assert [one.slug for one in planned(small, series=("one",)).proposals] == ["change-main", "add-a-total"]


def test_a_name_that_others_have_is_a_need_where_the_drift_check_says_so(tmp_path: Path) -> None:
    base = {**BASE, "up/other.py": b"def total(): ...\n"}
    changes = [
        Change("one", "add-a-total", {"up/calc.py": TOTAL}),
        Change("one", "use-the-total", {"up/new.py": b"from up.calc import total\n\nSUM = total(1, 2)\n"}),
        Change("one", "use-the-other", {"up/newer.py": b"from up.other import total\n\nNONE = total()\n"}),
    ]
    found = by_slug(planned(fork(tmp_path, base, changes, {"v1.1": {"README": b"later\n"}})))
    assert found["use-the-total"].needs == ("up/one-add-a-total",)
    assert found["use-the-total"].why[0].startswith("without it up/new.py:1: ")
    assert found["use-the-other"].needs == ()


def test_who_takes_a_choice_needs_who_adds_it_and_not_others_that_take_it(tmp_path: Path) -> None:
    changes = [
        Change("one", "offer-it", {"up/new.py": b'CHOICES = ("some-choice",)\n'}),
        Change("one", "take-it", {"up/main.py": lines("main", {5: 'main_5 = "some-choice"'})}),
        Change("one", "take-it-too", {"up/calc.py": b"ONE = 1\n" + lines("calc", {5: 'calc_5 = "some-choice"'})}),
    ]
    found = by_slug(planned(fork(tmp_path, BASE, changes, {"v1.1": {"README": b"later\n"}})))
    assert [found[name].needs for name in ("offer-it", "take-it", "take-it-too")] == [
        (),
        ("up/one-offer-it",),
        ("up/one-offer-it",),
    ]
    assert found["take-it"].why == ("uses some-choice, which it adds",)


def test_two_that_need_each_other_are_one_pull_request(tmp_path: Path) -> None:
    changes = [
        Change("one", "call-it", {"up/main.py": lines("main", {10: "from up.calc import total"}), "up/new.py": b"LEFT = 1\n"}),
        Change("one", "add-it", {"up/calc.py": TOTAL + b"\n\nfrom up.new import LEFT\n"}),
        Change("one", "apart", {"docs/use.md": b"# Use\n\nSo.\n"}),
    ]
    plan = planned(fork(tmp_path, BASE, changes, {"v1.1": {"README": b"later\n"}}))
    assert [[part.path for part in one.parts] for one in plan.proposals] == [
        ["one/up/call-it.patch", "one/up/add-it.patch"],
        ["one/up/apart.patch"],
    ]


def test_what_has_landed_is_left_out_with_its_evidence(small: Fork) -> None:
    small.remote.commit({"up/calc.py": TOTAL}, "Total, at last")
    small.remote.tag("v1.2")
    plan = planned(small, "v1.2")
    (landed,) = plan.landed
    assert landed.outcome is Outcome.LANDED
    assert any("Total, at last" in said for said in landed.evidence)
    assert by_slug(plan)["use-the-total"].wave == 1


def test_everything_has_landed(tmp_path: Path) -> None:
    made = fork(tmp_path, BASE, [Change("one", "add-a-total", {"up/calc.py": TOTAL})], {"v1.1": {"up/calc.py": TOTAL}})
    assert planned(made).proposals == ()
    done = run(made, "--onto", "v1.1", "--no-tests")
    assert "nothing is left to propose" in done.output
    assert "not from its own git" not in done.output
    assert done.return_value == 0


def test_a_conflict_needs_a_person_and_what_stands_on_it_says_so(small: Fork) -> None:
    small.remote.commit({"up/main.py": lines("main", {10: "main_10 = 'theirs'"})}, "Theirs")
    small.remote.tag("v1.2")
    plan = planned(small, "v1.2")
    assert {row.patch.ref.path for row in plan.stuck} == {"one/up/change-main.patch", "two/up/change-main-again.patch"}
    assert [one.slug for one in plan.proposals] == ["add-a-total", "use-the-total"]
    assert run(small, "--onto", "v1.2", "--no-tests").return_value == 1


@pytest.mark.parametrize(
    "state",
    ['"merged"\npull = "https://example.org/up/pull/7"', '"declined"\nreason = "No."', '"inappropriate"\nreason = "No."'],
)
def test_what_upstream_has_or_did_not_want_is_set_aside_with_all_that_needs_it(small: Fork, state: str) -> None:
    small.edit("stacks/one/series.toml", 'state = "pending"', f"state = {state}")
    plan = planned(small)
    assert plan.proposals == ()
    reasons = {one.ref.path: one.reason for one in plan.aside}
    assert set(reasons) == {
        f"{name}.patch"
        for name in ("one/up/change-main", "one/up/add-a-total", "two/up/use-the-total", "two/up/change-main-again")
    }
    assert reasons["two/up/use-the-total.patch"].startswith("it needs one/up/add-a-total, and ")
    # Who names it, means it.
    assert len(planned(small, series=("one", "two")).proposals) == 4


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"series": ("three",)}, "unknown series 'three'"),
        ({"upstreams": ("down",)}, "down"),
        ({"series": ("one",), "split": {"two/up/use-the-total.patch": By.FILE}}, "unknown patch 'two/up/use-the-total"),
    ],
)
def test_what_is_not_there_is_a_line(small: Fork, wanted: dict[str, object], said: str) -> None:
    with pytest.raises(StackError, match=said):
        planned(small, **wanted)


def test_a_target_before_the_pin_is_refused(small: Fork) -> None:
    small.edit("pins.toml", 'tag = "v1.0"', 'tag = "v1.1"')
    small.edit("pins.toml", small.remote.git("rev-parse", "v1.0"), small.remote.git("rev-parse", "v1.1"))
    with pytest.raises(StackError, match=r"up v1\.0 is older than the pin v1\.1"):
        planned(small, "v1.0")
    assert [one.wave for one in planned(small, "v1.1").proposals] == [1, 1, 2, 2]


def proved(tmp_path: Path, tests: Sequence[Sequence[str]], proof: str = PROOF, later: Files | None = None) -> Fork:
    calc = b"ONE = 1\n" + lines("calc", {4: "HALF = 2"})
    changes = [
        Change("sums", "name-the-half", {"up/calc.py": calc}, tuple(tests[0])),
        Change(
            "sums",
            "halve-it",
            {"up/half.py": b"from up import calc\n\ncalc.half = lambda a: a // getattr(calc, 'HA' + 'LF')\n"},
            tuple(tests[1]),
        ),
    ]
    return fork(tmp_path, BASE, changes, {"v1.1": {"README": b"later\n", **(later or {})}}, proof)


HALVES = """
import up.calc

def test_name():
    assert up.calc.HALF == 2

def test_half():
    import up.half
    assert up.calc.half(4) == 2

def test_never():
    import up.half
    assert up.calc.half(4) == 3

def test_skipped():
    import pytest
    pytest.skip("no GPU")
"""


def test_what_a_test_needs_is_a_need(tmp_path: Path) -> None:
    made = proved(tmp_path, (["test_name"], ["test_half"]), HALVES)
    assert [one.wave for one in planned(made).proposals] == [1, 1]  # what is spelled in two pieces, only a run sees
    plan = planned(made, tests=True, python=PYTHON)
    found = by_slug(plan)
    assert found["halve-it"].needs == ("up/sums-name-the-half",)
    assert found["halve-it"].why == ("without it test_half fails",)
    assert [one.proof.state for one in plan.proposals if one.proof] == [ProofState.PASSES, ProofState.PASSES]


def test_a_proof_that_fails_with_the_whole_stack_needs_a_person(tmp_path: Path) -> None:
    made = proved(tmp_path, (["test_name"], ["test_never"]), HALVES)
    found = by_slug(planned(made, tests=True, python=PYTHON))
    assert found["halve-it"].proof is not None
    assert (found["halve-it"].proof.state, found["halve-it"].proof.reason) == (ProofState.FAILS, "test_never fails")
    assert run(made, "--onto", "v1.1", "--python", str(PYTHON)).return_value == 1


def test_a_proof_that_does_not_run_proves_nothing(tmp_path: Path) -> None:
    made = proved(tmp_path, (["test_name"], ["test_skipped"]), HALVES)
    done = run(made, "--onto", "v1.1", "--python", str(PYTHON), "--json")
    found = {one["name"]: one["tests"] for one in json.loads(done.stdout)["plans"][0]["proposals"]}
    assert found["up/sums-halve-it"] == {"state": "not run", "reason": "test_skipped was skipped"}
    assert done.return_value == 0


def test_what_upstream_does_by_itself_has_landed(tmp_path: Path) -> None:
    other = {"up/calc.py": b"ONE = 1\nHALF = int('2')\n" + lines("calc")}
    made = proved(tmp_path, (["test_name"], ["test_half"]), HALVES, other)
    plan = planned(made, tests=True, python=PYTHON)
    assert [row.patch.ref.path for row in plan.landed] == ["sums/up/name-the-half.patch"]
    assert "landed by behaviour in v1.1" in plan.landed[0].evidence[0]
    assert [one.slug for one in plan.proposals] == ["halve-it"]


MIXED = Change(
    "one",
    "two-things",
    {
        "up/main.py": lines(
            "main",
            {2: "main_2 = 'ours'", 25: "main_25 = 'ours'"},
            more="\n\ndef first():\n    return 1\n\n\ndef second():\n    return first()\n",
        ),
        "up/calc.py": TOTAL,
        "up/uses.py": b"from up.calc import total\n\nSUM = total(1, 2)\n",
        "docs/use.md": b"# Use\n\nTake `total`.\n",
    },
)


@pytest.fixture
def mixed(tmp_path: Path) -> Fork:
    return fork(tmp_path, BASE, [MIXED], {"v1.1": {"README": b"later\n"}})


def test_a_patch_that_falls_apart_is_told_and_left_whole(mixed: Fork) -> None:
    (one,) = planned(mixed).proposals
    assert [part.cut for part in one.parts] == [""]
    assert one.apart == ("docs/use.md, up/calc.py, up/uses.py", "up/main.py")


def test_split_by_file(mixed: Fork) -> None:
    plan = planned(mixed, split={MIXED.path: By.FILE})
    found = {tuple(part.cut for part in one.parts): one for one in plan.proposals}
    assert set(found) == {("docs/use.md", "up/calc.py"), ("up/main.py",), ("up/uses.py",)}
    assert found[("up/uses.py",)].needs == (found[("docs/use.md", "up/calc.py")].name,)
    assert found[("up/main.py",)].name == "up/one-two-things-main"
    assert found[("up/main.py",)].parts[0].patch.subject == "Two things (up/main.py)"


@pytest.mark.parametrize("by", By)
def test_all_parts_together_are_the_patch(mixed: Fork, by: By) -> None:
    with mixed.stores() as stores:
        (whole,) = plans(stores, Wanted(tests=False))
        (plan,) = plans(stores, Wanted(tests=False, split={MIXED.path: by}))
        objects = stores.objects("up")
        ids = [by_wave for wave in plan.waves for by_wave in wave]
        assert len(ids) > 2
        added = sorted(
            line
            for one in plan.proposals
            for part in one.parts
            for line in part.patch.diff.split(b"\n")
            if line[:1] == b"+" and line[:3] != b"+++"
        )
        assert added == sorted(
            line for line in whole.proposals[0].parts[0].patch.diff.split(b"\n") if line[:1] == b"+" and line[:3] != b"+++"
        )
        assert objects.tree_of(plan.base) == objects.tree_of(whole.base)


def test_split_at_definitions(mixed: Fork) -> None:
    plan = planned(mixed, split={MIXED.path: By.DEFINITION})
    found = {part.cut: one for one in plan.proposals for part in one.parts}
    assert {"up/main.py", "up/main.py:first", "up/main.py:second"} <= set(found)
    assert found["up/main.py:second"].needs == (found["up/main.py:first"].name,)
    assert found["up/main.py"].needs == ()


def test_the_patches_are_written_and_git_takes_them(small: Fork, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(small, "--onto", "v1.1", "--no-tests", "--output", str(out))
    assert "4 patches in" in done.output
    files = sorted(file.relative_to(out).as_posix() for file in out.rglob("*.patch"))
    assert files == [
        "up/wave-1/one-add-a-total/0001-add-a-total.patch",
        "up/wave-1/one-change-main/0001-change-main.patch",
        "up/wave-2/two-change-main-again/0001-change-main-again.patch",
        "up/wave-2/two-use-the-total/0001-use-the-total.patch",
    ]
    small.remote.git("checkout", "--quiet", "--detach", "v1.1")
    git.run(["am", "--quiet", *(str(out / file) for file in files)], cwd=small.remote.path)
    assert (small.remote.path / "up/main.py").read_bytes() == b"# new\n" + lines("main", {10: "main_10 = 'ours, again'"})
    # Again: what is no more goes, what is somebody else's stays.
    (out / "up/wave-2/two-use-the-total/0002-of-before.patch").write_text("")
    assert run(small, "--onto", "v1.1", "--no-tests", "--output", str(out)).return_value == 0
    assert sorted(file.relative_to(out).as_posix() for file in out.rglob("*.patch")) == files
    (out / "up/notes.txt").write_text("mine")
    failed = run(small, "--onto", "v1.1", "--no-tests", "--output", str(out))
    assert isinstance(failed.exception, StackError)
    assert (out / "up/notes.txt").read_text() == "mine"


def test_the_drawing_has_all_of_it(small: Fork, tmp_path: Path) -> None:
    done = run(small, "--onto", "v1.1", "--no-tests", "--svg", str(tmp_path / "plan.svg"))
    assert "up/one-add-a-total\n└─ up/two-use-the-total\n" in done.output
    space = "{http://www.w3.org/2000/svg}"
    drawn = ET.parse(tmp_path / "plan.svg").getroot()
    boxes = {
        group.findtext(f"{space}title"): {
            key: int(group.find(f"{space}rect").get(key)) for key in ("x", "y", "width", "height")
        }  # type: ignore[union-attr,arg-type]
        for group in drawn.iter(f"{space}g")
    }
    assert set(boxes) == {one.name for one in planned(small).proposals}
    assert boxes["up/one-add-a-total"]["x"] + boxes["up/one-add-a-total"]["width"] < boxes["up/two-use-the-total"]["x"]
    placed = sorted((box["x"], box["y"], box["height"]) for box in boxes.values())
    assert all(x != other or y + height < below for (x, y, height), (other, below, _) in itertools.pairwise(placed))
    assert len(list(drawn.iter(f"{space}path"))) == 1 + 2  # an arrow's tip, two needs


def test_json_says_what_the_table_does(small: Fork) -> None:
    (plan,) = json.loads(run(small, "--onto", "v1.1", "--no-tests", "--json").stdout)["plans"]
    assert (plan["upstream"], plan["onto"], plan["real"], plan["landed"], plan["stuck"], plan["aside"]) == (
        "up",
        "v1.1",
        True,
        [],
        [],
        [],
    )
    one = next(one for one in plan["proposals"] if one["name"] == "up/two-use-the-total")
    assert (one["wave"], one["added"], one["removed"], one["tests"]) == (2, 3, 0, None)
    assert [need["name"] for need in one["needs"]] == ["up/one-add-a-total"]


def test_only_some_pull_requests_and_what_they_need(small: Fork) -> None:
    said = json.loads(run(small, "--onto", "v1.1", "--no-tests", "--only", "*-use-the-*", "--json").stdout)
    assert [one["name"] for one in said["plans"][0]["proposals"]] == ["up/one-add-a-total", "up/two-use-the-total"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--onto", "v1.1", "--no-tests", "--only", "nothing"), "--only nothing matches no pull request of the plan"),
        (("--split", "one/up/change-main:by=line"), "by=file, by=hunk, by=definition"),
        (("--onto", "up=v1.1", "--onto", "v1.0"), "names up twice"),
        (("--lint", "--status"), "cannot be combined"),
        (("--lint", "--svg", "plan.svg"), "show the plan"),
        (("--lint", "--despite", "https://github.com/up/up/pull/1"), "--despite says which pull requests --push and --open"),
        (("--status", "--only", "up/one-*"), "--status does not plan"),
    ],
)
def test_wrong_usage_is_a_line(small: Fork, args: tuple[str, ...], said: str) -> None:
    assert said in str(run(small, *args).exception)


def test_a_lane_is_planned_with_its_own_patches_and_under_names_of_its_own(small: Fork) -> None:
    begun = CliRunner().invoke(cli, ["--root", str(small.root), "lane", "add", "old"], standalone_mode=False)
    assert begun.exit_code == 0
    own = small.root / "stacks/lanes/old/one/series.toml"
    own.parent.mkdir(parents=True)
    text = (small.root / "stacks/one/series.toml").read_text()
    own.write_text(text[text.index("[[patch]]") :].rpartition("[[patch]]")[0])
    found = run(small, "--no-tests", "--onto", "v1.1", "one", "--lane", "old", "--json")
    said = json.loads(found.output)
    (proposal,) = said["plans"][0]["proposals"]
    assert (said["lane"], proposal["name"], proposal["branch"]) == (
        "old",
        "up/one-change-main@old",
        "pr/up/one-change-main@old",
    )
    main = json.loads(run(small, "--no-tests", "--onto", "v1.1", "--json").output)
    assert (main["lane"], len(main["plans"][0]["proposals"])) == (None, 4)
    assert not any("@" in one["name"] for one in main["plans"][0]["proposals"])
    waiting = json.loads(run(small, "--no-tests", "--onto", "v1.1", "--lane", "old", "two", "--json").output)
    needs = [need["name"] for one in waiting["plans"][0]["proposals"] for need in one["needs"]]
    assert needs == ["up/one-change-main@old"]
