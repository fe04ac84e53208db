# SPDX-License-Identifier: Apache-2.0
"""The list of jobs: which ones a stack has, and that there are never more than a forge takes."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from stack.base.errors import StackError
from stack.matrix import listing
from stack.matrix.job import MOST, Kind
from stack.matrix.listing import Choice
from stack.model.stack import Stack as Carried

from ..carry.world import World
from ..cli.conftest import Stack
from .conftest import QUICK, Proved

GATES = """
[cpu]
has = ["cpu"]
[[cpu.cases]]
names = "serve/*"
least = 1
[big]
has = ["cpu", "sm90"]
[[big.cases]]
names = "kernels/*"
least = 1
"""


def lane(world: World, stack: Stack, name: str) -> None:
    assert stack("lane", "add", name).code == 0


def names(stack: Stack, *args: str) -> list[str]:
    done = stack("matrix", "--json", *args)
    assert done.code == 0, done
    return [job["name"] for job in json.loads(done.out)["jobs"]]


def test_a_job_for_each_series_and_lane(proved: Proved, stack: Stack) -> None:
    lane(proved.world, stack, "1.0")
    assert names(stack, "--only", "proofs") == ["proofs-one", "proofs-two", "proofs-one@1.0", "proofs-two@1.0"]
    assert names(stack, "--only", "proofs", "--lane", "main") == ["proofs-one", "proofs-two"]
    assert names(stack, "--only", "proofs", "--series", "two", "--lane", "1.0") == ["proofs-two@1.0"]
    jobs = json.loads(stack("matrix", "--json", "--only", "proofs", "--lane", "1.0").out)["jobs"]
    assert jobs[0]["command"] == "stack prove one --lane 1.0"


def test_wheels_and_images_by_platform(world: World, stack: Stack) -> None:
    pins = world.root / "pins.toml"
    pins.write_text(f'{pins.read_text()}\n[base]\nimage = "debian"\ntag = "12"\ndigest = "sha256:{"0" * 64}"\n')
    assert names(stack) == ["wheels", "image"]
    listed = json.loads(stack("matrix", "--json", "--platform", "x86_64", "--platform", "aarch64").out)["jobs"]
    assert [job["command"] for job in listed] == [
        "stack build wheels --platform x86_64 --out .stack/matrix/wheels-x86_64",
        "stack build wheels --platform aarch64 --out .stack/matrix/wheels-aarch64",
        "stack image build --platform linux/amd64 --output oci:.stack/matrix/image-x86_64",
        "stack image build --platform linux/arm64 --output oci:.stack/matrix/image-aarch64",
    ]
    world.edit("pins.toml", 'image = "debian"', 'image = "localhost/debian"')
    left_out = json.loads(stack("matrix", "--json").out)["left_out"]
    assert "made on one machine" in next(each["why"] for each in left_out if each["kind"] == "images")


def test_suites_of_the_hardware_that_gates_name(world: World, stack: Stack) -> None:
    (world.root / "validation").mkdir()
    (world.root / "validation/gates.toml").write_text(GATES)
    suites = ("--only", "kernels", "--only", "servers")
    assert names(stack, *suites) == ["kernels-cpu", "kernels-sm90", "servers-cpu"]
    assert names(stack, *suites, "--hardware", "sm121") == ["kernels-sm121"]
    [job] = json.loads(stack("matrix", "--json", "--hardware", "sm121", "--only", "kernels", "--python", "/opt/v/python").out)[
        "jobs"
    ]
    assert job["needs"] == {"cpus": 2, "memory": 8, "gpus": 1, "labels": ["sm121"], "minutes": None}
    assert "--python /opt/v/python" in job["command"]


def test_every_command_is_one_that_the_program_takes(proved: Proved, stack: Stack) -> None:
    """Each command of the list is parsed by the program itself; `--help` in its place keeps it from running."""
    (proved.world.root / "validation").mkdir()
    (proved.world.root / "validation/gates.toml").write_text(GATES)
    pins = proved.world.root / "pins.toml"
    pins.write_text(f'{pins.read_text()}\n[base]\nimage = "debian"\ntag = "12"\ndigest = "sha256:{"0" * 64}"\n')
    jobs = json.loads(stack("matrix", "--json", "--platform", "x86_64").out)["jobs"]
    assert {job["kind"] for job in jobs} == {kind.value for kind in Kind}
    for job in jobs:
        program, *arguments = job["command"].split()
        assert program == "stack"
        assert stack(*arguments, "--help").out.startswith("Usage: ")
        assert stack(*arguments, "--no-such-option").code == 2


def test_nothing_to_do(world: World, stack: Stack) -> None:
    assert stack("matrix", "--only", "proofs").refused().startswith("the stack has no such job: no series names a proof: ")
    pins = world.root / "pins.toml"
    pins.write_text(re.sub("^archive = .*$", 'source = "git"', pins.read_text(), flags=re.MULTILINE))
    assert stack("matrix").out.startswith("no job\nno job of proofs: no series names a proof\n")
    assert stack("matrix", "run").refused() == "the stack has no job to run: see why: stack matrix"


def test_the_summary_counts_each_kind(proved: Proved, stack: Stack) -> None:
    assert stack("matrix", "--only", "proofs").out.splitlines()[0] == "2 jobs: proofs 2"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--lane", "9"), "there is no lane '9': pins.toml has these: main"),
        (("--series", "three"), "there is no series 'three': stacks/stack.toml has these: one, two"),
        (("--platform", "x; y"), "--platform 'x; y' is not a name: use letters, digits and '_'"),
        (("--hardware", "$(x)"), "--hardware '$(x)' is not a name: use letters, digits and '_'"),
        (("--python", "a b"), "--python 'a b' is not a path: use letters, digits, '/', '.', '_', '+' and '-'"),
        (("--only", "tests"), None),
        (("--github", "--gitlab"), None),
        (("--runner", "x"), None),
        (("--only", "proofs", "run"), None),
    ],
)
def test_what_cannot_be_meant_is_refused(proved: Proved, stack: Stack, args: tuple[str, ...], said: str | None) -> None:
    refused = stack("matrix", *args).refused()
    assert said is None or refused == said


def many(world: World, lanes: int, series: int) -> Mapping[str | None, Carried]:
    carried = world.load()
    one = carried.get("one")
    every = tuple(replace(one, name=f"s{number}") for number in range(series))
    stack = replace(carried, series=every)
    return {None: stack} | {f"{number}": replace(stack, lane=f"{number}") for number in range(1, lanes)}


@pytest.fixture(scope="session")
def provable(template: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    import shutil  # noqa: PLC0415

    root = tmp_path_factory.mktemp("provable") / "stack"
    shutil.copytree(template.root, root)
    file = root / "stacks/one/series.toml"
    file.write_text(QUICK + file.read_text())
    return replace(template, root=root)


@given(lanes=some.integers(1, 40), series=some.integers(1, 60), platforms=some.integers(0, 9))
def test_never_more_jobs_than_a_matrix_takes(provable: World, lanes: int, series: int, platforms: int) -> None:
    """Every series of every lane is in exactly one job, however they are grouped; what cannot be grouped is refused."""
    choice = Choice(only=(Kind.PROOFS, Kind.WHEELS), platforms=tuple(f"p{number}" for number in range(platforms)))
    wheels = lanes * max(1, platforms)
    if lanes + wheels > MOST:
        with pytest.raises(StackError, match=f"jobs are more than {MOST}"):
            listing.jobs(many(provable, lanes, series), choice)
        return
    listed = listing.jobs(many(provable, lanes, series), choice)
    assert len(listed.jobs) <= MOST
    proofs = [job for job in listed.jobs if job.kind is Kind.PROOFS]
    assert sorted((job.lane or "", name) for job in proofs for name in job.series) == sorted(
        (lane or "", f"s{number}") for lane in many(provable, lanes, series) for number in range(series)
    )
    assert len({job.name for job in listed.jobs}) == len(listed.jobs)
    assert (listed.grouped is None) == (lanes * series + wheels <= MOST)
    if listed.grouped is not None:  # no smaller group would have done
        smaller = listed.grouped - 1
        assert smaller == 0 or lanes * -(-series // smaller) + wheels > MOST


def test_a_grouped_list_says_so(provable: World) -> None:
    listed = listing.jobs(many(provable, 6, 50), Choice(only=(Kind.PROOFS,)))
    assert listed.grouped == 2
    assert listed.jobs[0].arguments == ("prove", "s0", "s1")
    assert listed.jobs[-1].name == "proofs-25@5"


def test_series_are_grouped_on_request(proved: Proved, stack: Stack) -> None:
    done = stack("matrix", "--json", "--only", "proofs", "--group", "2")
    assert json.loads(done.out)["grouped"] == 2
    assert [job["command"] for job in json.loads(done.out)["jobs"]] == ["stack prove one two"]
    assert done.err == ""
    assert names(stack, "--only", "proofs", "--group", "9") == ["proofs-1"]
