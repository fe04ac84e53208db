# SPDX-License-Identifier: Apache-2.0
"""`stack matrix run` on this machine: what runs, what is kept, and what a kill leaves."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from stack.matrix import local
from stack.matrix.job import Job, Kind, Needs

from ..carry.world import World
from ..cli.conftest import Stack
from .conftest import PROOFS, Proved, alive, states, until


def test_jobs_run_and_are_kept(proved: Proved) -> None:
    proved.go()
    done = proved.run(*PROOFS)
    assert (done.code, done.err) == (0, "")
    assert states(json.loads(done.out)) == {"proofs-one": "passed", "proofs-two": "passed"}
    log = (proved.world.root / ".stack/matrix/logs/proofs-one.log").read_text()
    assert log.startswith("$ stack prove one\n")
    assert "1 proof: 1 hold" in log
    ran = len(proved.pids())
    assert states(json.loads(proved.run(*PROOFS).out)) == {"proofs-one": "kept", "proofs-two": "kept"}
    assert len(proved.pids()) == ran
    assert states(json.loads(proved.run(*PROOFS, "--again").out)) == {"proofs-one": "passed", "proofs-two": "passed"}


def test_the_table_names_what_failed_first(proved: Proved) -> None:
    proved.go()
    proved.world.edit("stacks/one/series.toml", "grep -q hook", "grep -q hooks")
    done = proved.run("matrix", "run", "--only", "proofs")
    assert done.code == 1
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["2", "jobs:", "1", "passed,", "1", "failed"]
    assert rows[3][:2] == ["proofs-one", "failed"]
    assert "exit code 1" in done.out
    assert states(json.loads(proved.run(*PROOFS).out)) == {"proofs-one": "failed", "proofs-two": "kept"}


def test_a_change_repeats_the_jobs_that_it_concerns(proved: Proved) -> None:
    proved.go()
    proved.write("one", 'drop_when = "never"\n')
    assert proved.run(*PROOFS).code == 0
    (proved.world.root / "README.md").write_text("Nothing.\n")
    assert set(states(json.loads(proved.run(*PROOFS).out)).values()) == {"kept"}
    proved.world.edit("stacks/two/series.toml", "grep -q limit,", "grep -q 'limit, '")
    assert set(states(json.loads(proved.run(*PROOFS).out)).values()) == {"passed"}


def test_a_change_during_a_run_keeps_nothing(proved: Proved) -> None:
    process = proved.start(*PROOFS)
    until(lambda: len(proved.pids()) == 1 and len(proved.results()) == 1)
    proved.world.edit("stacks/two/series.toml", "It is needed, too.", "It is needed here, too.")
    proved.go()
    out, _ = process.communicate(timeout=60)
    assert states(json.loads(out)) == {"proofs-one": "passed", "proofs-two": "passed"}
    assert len(proved.results()) == 1


def test_killed_the_next_run_goes_on(proved: Proved) -> None:
    process = proved.start(*PROOFS)
    until(lambda: len(proved.pids()) == 1 and len(proved.results()) == 1)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    until(lambda: not alive(proved.pids()[0]))
    proved.go()
    done = proved.run(*PROOFS)
    assert done.code == 0
    assert states(json.loads(done.out)) == {"proofs-one": "kept", "proofs-two": "passed"}


def test_interrupted_it_ends_its_jobs(proved: Proved) -> None:
    process = proved.start(*PROOFS)
    until(lambda: len(proved.pids()) == 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    until(lambda: not alive(proved.pids()[0]))


def test_two_runs_at_once_wait_for_each_other(proved: Proved) -> None:
    first = proved.start(*PROOFS)
    until(lambda: len(proved.pids()) == 1)
    second = proved.start(*PROOFS)
    assert second.stderr is not None
    assert "waiting for another `stack matrix run`" in second.stderr.readline()
    proved.go()
    first.communicate(timeout=60)
    assert first.returncode == 0
    out, _ = second.communicate(timeout=60)
    assert states(json.loads(out)) == {"proofs-one": "kept", "proofs-two": "kept"}


MEETS = """
proves = [{{ run = '''touch "$STACK_ROOT/began-{mine}"; for try in $(seq 40); do test -e "$STACK_ROOT/began-{other}" && break; \
sleep 0.05; done; test -e "$STACK_ROOT/began-{other}" && grep -q '{text}' gamma/main.py''', patches = ["gamma/{patch}.patch"] }}]
"""


@pytest.mark.parametrize(("jobs", "code"), [(1, 1), (2, 0)])
def test_so_many_at_once(world: World, stack: Stack, jobs: int, code: int) -> None:
    """Each proof waits until that of the other job has begun, which one job at a time never does."""
    proved = Proved(world, stack)
    proved.write("one", MEETS.format(mine="one", other="two", text="hook", patch="hook-main"))
    proved.write("two", MEETS.format(mine="two", other="one", text="limit,", patch="fix-limit"))
    assert proved.run(*PROOFS, "--jobs", jobs).code == code


def test_jobs_for_other_hardware_are_not_run(proved: Proved) -> None:
    done = proved.run("matrix", "run", "--only", "kernels", "--hardware", "sm999", "--json")
    assert done.code == 0
    [job] = json.loads(done.out)["jobs"]
    assert (job["state"], job["why"], job["log"]) == ("not here", "this machine has no sm999", None)
    assert proved.results() == []


def test_memory_and_gpus_limit_what_runs_beside_each_other(tmp_path: Path) -> None:
    def engine(running: Job, memory: float, gpus: int) -> local.Local:
        made = local.Local(tmp_path, tmp_path, local.Capacity(4, memory, frozenset({"sm90"}), gpus), 0)
        with (tmp_path / "log").open("w+b") as log, subprocess.Popen(["true"]) as process:
            made._now.append(local._Running(running, process, log, 0.0, tuple(range(running.needs.gpus))))
        return made

    small, large = (Job(name, Kind.PROOFS, (), Needs(memory=memory)) for name, memory in (("small", 4), ("large", 60)))
    gpu = Job("gpu", Kind.KERNELS, (), Needs(gpus=1, labels=("sm90",)))
    assert engine(small, 8, 0)._fits(small)
    assert not engine(small, 7, 0)._fits(small)
    assert local.Local(tmp_path, tmp_path, local.Capacity(4, 8), 0)._fits(large)  # alone it may try
    assert engine(gpu, 99, 2)._fits(gpu)
    assert not engine(gpu, 99, 1)._fits(gpu)
    assert engine(gpu, 99, 1)._fits(small)
