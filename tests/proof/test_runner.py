# SPDX-License-Identifier: Apache-2.0
"""Runs are kept by the hash of all that they depend on, and no run sees anything of another."""

import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.ids import TreeId
from stack.model.stack import load
from stack.proof import interpreters, proof_module, pytest_run
from stack.proof.pytest_run import Run
from stack.proof.runner import Runner
from stack.store.objects import Entry

from .test_proof_module import PYTHON, proved, root, running, shared_server, stores

__all__ = ["proved", "root", "running", "shared_server", "stores"]

WAITED = 60
"""Seconds within which an event has to come that takes a moment."""


def run(root: Path, cache: Path, python: Path = PYTHON, *, again: bool = False, tests: tuple[str, ...] = ()) -> Run:
    """One command's run of the proof on the patched tree."""
    with Stores(load(root), Place(cache, "git")) as opened, Runner(opened, again=again) as runner:
        return runner.run(the_proof(root), python, proof_module.tree(opened, "up"), tests)


def the_proof(root: Path) -> proof_module.Proof:
    return proof_module.load(root / "proofs/test_up_proof.py", load(root))


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / "proofs" / f"{name}.py").write_text(text)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter with an environment of its own, which sees this one's packages, too."""
    place = tmp_path / "environment"
    venv.create(place, with_pip=False)
    (packages(place / "bin/python") / "seen.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return place / "bin/python"


def packages(python: Path) -> Path:
    (found,) = python.parents[1].glob("lib/python*/site-packages")
    return found


def install(python: Path, name: str, version: str) -> None:
    for old in packages(python).glob(f"{name}-*.dist-info"):
        (old / "METADATA").unlink()
        old.rmdir()
    folder = packages(python) / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_run_without_a_change_is_not_repeated(root: Path, tmp_path: Path) -> None:
    first, second = (run(root, tmp_path / "cache") for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
    assert (second.cases, second.output, second.good) == (first.cases, first.output, True)
    assert not run(root, tmp_path / "cache", again=True).cached


def test_a_failure_is_kept_too(root: Path, tmp_path: Path) -> None:
    append(root / "proofs/test_up_proof.py", "\ndef test_wrong():\n    assert up.ONE == 2\n")
    first, second = (run(root, tmp_path / "cache") for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
    assert first.failed == second.failed == ("test_wrong",)
    assert "assert 1 == 2" in second.output


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "the proof": lambda root, _: append(root / "proofs/test_up_proof.py", "\n# changed\n"),
    "a module that it imports": lambda root, _: append(root / "proofs/helper.py", "\n# changed\n"),
    "a module that that one imports": lambda root, _: append(root / "proofs/deeper.py", "\n# changed\n"),
    "its conftest": lambda root, _: append(root / "proofs/conftest.py", "\n# changed\n"),
    "what is preloaded": lambda root, _: append(root / "proofs/preload.py", "\n# changed\n"),
    "pytest's options": lambda root, _: append(root / "pyproject.toml", "\n[tool.pytest.ini_options]\naddopts = '-x'\n"),
    "a package's version": lambda _, python: install(python, "something", "1.1"),
    "a package more": lambda _, python: install(python, "another", "1.0"),
}
SAME: dict[str, Callable[[Path, Path], object]] = {
    "a module that it does not import": lambda root, _: append(root / "proofs/unused.py", "\n# changed\n"),
    "a message of a patch": lambda root, _: [
        file.write_text(file.read_text().replace("Halve it", "Halve it well"))
        for file in (root / "stacks/sums/up").glob("halve*")
    ],
    "another table of pyproject.toml": lambda root, _: append(root / "pyproject.toml", "\n[tool.other]\nx = 1\n"),
}


@pytest.fixture
def prepared(root: Path, tmp_path: Path, python: Path, shared_server: None) -> Callable[[], Run]:
    """A proof with helpers, run once; the command that runs it again."""
    write(root, helper="import deeper\n", deeper="", unused="", conftest="", preload="import json\n")
    text = (root / "proofs/test_up_proof.py").read_text()
    (root / "proofs/test_up_proof.py").write_text(text.replace("import up", "import helper\nimport up", 1))
    (root / "pyproject.toml").write_text("[tool.other]\nx = 0\n".replace("[tool.other]\nx = 0\n", ""))
    install(python, "something", "1.0")

    def again() -> Run:
        interpreters.installed.cache_clear()  # a command asks once
        return run(root, tmp_path / "cache", python)

    assert not again().cached
    assert again().cached
    return again


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_a_run_depends_on_repeats_it(
    prepared: Callable[[], Run], root: Path, python: Path, change: str
) -> None:
    CHANGES[change](root, python)
    assert not prepared().cached
    assert prepared().cached


@pytest.mark.parametrize("change", SAME)
def test_a_change_of_anything_else_does_not(prepared: Callable[[], Run], root: Path, python: Path, change: str) -> None:
    SAME[change](root, python)
    assert prepared().cached


def test_another_tree_or_other_tests_are_another_run(root: Path, stores: Stores) -> None:
    proof = the_proof(root)
    bare = stores.objects("up").tree_of(stores.base("up"))
    asked = [(proof_module.tree(stores, "up"), ()), (bare, ()), (bare, ("test_always",)), (bare, ("test_sum",))]
    for earlier in (False, True):
        with Runner(stores) as runner:
            assert [runner.run(proof, PYTHON, tree, tests).cached for tree, tests in asked] == [earlier] * 4
            assert runner.run_upstream(proof, PYTHON, bare).cached is earlier
            assert (runner.ran, runner.cached) == ((0, 5) if earlier else (5, 0))


def test_the_compiler_and_variables_of_proofs_are_part_of_the_key(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    assert not run(root, cache).cached
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert not run(root, cache).cached
    monkeypatch.setenv("UNRELATED", "1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "17")  # preload.py's to set
    assert run(root, cache).cached


def test_a_variable_that_is_not_part_of_the_key_is_not_seen(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRELATED", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    append(root / "proofs/test_up_proof.py", "\ndef test_none():\n    import os\n    assert 'UNRELATED' not in os.environ\n")
    assert run(root, tmp_path / "cache").good


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import pytest; pytest.skip('no GPU')", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "pytest was ended by signal 9"),
        ("import nowhere_at_all", ""),
        ("import os; os._exit(3)", ""),
        ("import pytest; pytest.exit('enough')", ""),
        ("raise KeyboardInterrupt", ""),
        ("raise MemoryError", ""),
        ("raise OSError(28, 'No space left on device')", ""),
        ("from pathlib import Path; Path(__file__).write_text(Path(__file__).read_text() + '# more')", ""),
    ],
    ids=["skipped", "killed", "lacking", "ended", "stopped", "interrupted", "no memory", "no disk", "edited meanwhile"],
)
def test_what_did_not_run_whole_is_never_kept(root: Path, tmp_path: Path, shared_server: None, body: str, said: str) -> None:
    append(root / "proofs/test_up_proof.py", f"\ndef test_more():\n    {body}\n")
    for _ in range(2):
        found = run(root, tmp_path / "cache")
        assert not found.cached
        assert said in found.broken
    assert not list((tmp_path / "cache/results").glob("*/*"))


def test_of_upstreams_own_tests_some_may_be_skipped(root: Path, stores: Stores) -> None:
    proof = the_proof(root)
    objects = stores.objects("up")
    bare = objects.tree_of(stores.base("up"))
    test = objects.entry(bare, "tests/test_up.py")
    assert test is not None
    more = b"import pytest\n\ndef test_one(): ...\n\ndef test_more():\n    pytest.skip('no GPU')\n"
    tree = objects.replaced(bare, {"tests/test_up.py": Entry(test.mode, objects.write_blob(more))})
    for earlier in (False, True):
        with Runner(stores) as runner:
            found = runner.run_upstream(proof, PYTHON, tree)
            assert (found.cached, found.passed, found.skipped) == (earlier, ("test_one",), ("test_more",))


def test_a_run_that_takes_too_long_is_ended_with_all_that_it_started(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    body = f"import subprocess, time; p = subprocess.Popen(['sleep', '600']); open({str(started)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    append(root / "proofs/test_up_proof.py", f"\ndef test_slow():\n    {body}\n")
    monkeypatch.setattr(pytest_run, "LONGEST", 5)
    found = run(root, tmp_path / "cache")
    assert "it took longer than" in found.broken
    assert not found.whole
    ended(int(started.read_text()))


def ended(process: int) -> None:
    """Wait until a process is gone."""
    until = time.monotonic() + WAITED
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {process} still runs")


LEAVES = """
import os
import subprocess
import sys
import threading
import time

import json
import up

def test_leaves_all_it_can():
    os.environ["LEFT"] = "1"
    os.chdir("/")
    sys.path.append("/left")
    up.ONE = 2
    json.left = True
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    tree = os.path.dirname(up.__file__)
    with open(os.path.join(tree, "left.py"), "w") as file:
        file.write("x = 1")
    with open(os.path.join(tree, "up.py"), "a") as file:
        file.write("LEFT = 1")
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open({started!r}, "w") as file:
        file.write(str(process.pid))
"""
FINDS = """
import os
import sys
import threading

import json
import pytest
import up

def test_finds_nothing():
    assert "LEFT" not in os.environ
    assert os.getcwd() != "/"
    assert "/left" not in sys.path
    assert up.ONE == 1
    assert not hasattr(up, "LEFT")
    assert not hasattr(json, "left")
    assert threading.active_count() == 1
    with pytest.raises(ImportError):
        import left
"""


def test_a_run_finds_nothing_that_another_one_left(root: Path, stores: Stores, tmp_path: Path) -> None:
    proof, tree = the_proof(root), proof_module.tree(stores, "up")
    started = tmp_path / "started"
    write(root, preload="import json\n")
    with Runner(stores) as runner:
        proof.path.write_text(FINDS)
        assert runner.run(proof, PYTHON, tree).good
        proof.path.write_text(LEAVES.format(started=str(started)))
        assert runner.run(proof, PYTHON, tree).good
        ended(int(started.read_text()))
        proof.path.write_text(f"{FINDS}\n# once more\n")
        found = runner.run(proof, PYTHON, tree)
        assert found.good, found.output
        assert not found.cached


def test_what_is_preloaded_is_imported_once_for_all_runs(root: Path, stores: Stores, tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    write(root, preload=f"import os\nos.environ['SET'] = '1'\nopen({str(counted)!r}, 'a').write('x')\n")
    append(root / "proofs/test_up_proof.py", "\ndef test_set():\n    import os\n    assert os.environ['SET'] == '1'\n")
    bare = stores.objects("up").tree_of(stores.base("up"))
    with Runner(stores) as runner:
        assert [
            runner.run(the_proof(root), PYTHON, tree, ("test_set",)).good for tree in (bare, proof_module.tree(stores, "up"))
        ] == [
            True,
            True,
        ]
    assert counted.read_text() == "x"


def test_a_preload_that_never_ends_is_an_error_that_names_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest_run, "_PRELOADING", 0.5)
    write(root, preload="import time; time.sleep(600)\n")
    with pytest.raises(StackError, match=r"preload\.py"):
        run(root, tmp_path / "cache")


@pytest.mark.parametrize("preload", ["raise ValueError('no')", "import sys; sys.exit(3)", "def"])
def test_a_preload_that_fails_is_an_error_that_names_it(root: Path, tmp_path: Path, preload: str) -> None:
    write(root, preload=preload)
    with pytest.raises(StackError, match=r"preload\.py"):
        run(root, tmp_path / "cache")


def test_a_server_that_is_killed_breaks_one_run_and_no_other(root: Path, stores: Stores) -> None:
    append(
        root / "proofs/test_up_proof.py",
        "\ndef test_kill():\n    import os, signal\n    os.kill(os.getppid(), signal.SIGKILL)\n",
    )
    bare = stores.objects("up").tree_of(stores.base("up"))
    with Runner(stores) as runner:
        assert "has ended" in runner.run(the_proof(root), PYTHON, bare, ("test_kill",)).broken
        assert runner.run(the_proof(root), PYTHON, bare, ("test_always",)).good


COMMAND = """
import sys
from pathlib import Path
from stack.cli import main
sys.argv = ["stack", *sys.argv[1:]]
main()
"""


@pytest.fixture
def proving(root: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command in the middle of a proof, and the process that runs the proof."""
    started = tmp_path / "started"
    body = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    append(root / "proofs/test_up_proof.py", f"\ndef test_slow():\n    {body}\n")
    asked = ["--root", str(root), "--cache", str(tmp_path / "cache"), "prove", "--source", "git", "--python", sys.executable]
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *asked], text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as command:
        until = time.monotonic() + WAITED
        while not (started.exists() and started.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        yield command, int(started.read_text())
        command.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_ends_takes_its_proof_along(
    proving: tuple[subprocess.Popen[str], int], tmp_path: Path, number: int
) -> None:
    command, process = proving
    command.send_signal(number)
    command.wait(WAITED)
    ended(process)
    assert not list((tmp_path / "cache/results").glob("*/*"))


def test_a_folder_that_was_left_half_way_is_made_anew(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(root, cache).good
    (folder,) = (path for path in (cache / "trees").iterdir() if path.is_dir())
    (folder / "now").unlink()
    (folder / "tree/up.py").write_text("nonsense")
    (folder / "tree.index.lock").touch()
    found = run(root, cache, again=True)
    assert found.good, found.output


def test_two_commands_at_a_time_have_folders_of_their_own(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Stores(load(root), Place(cache, "git")) as opened, Runner(opened) as one, Runner(opened) as other:
        tree: TreeId = proof_module.tree(opened, "up")
        bare = opened.objects("up").tree_of(opened.base("up"))
        assert one.run(the_proof(root), PYTHON, tree).good
        assert other.run(the_proof(root), PYTHON, bare, ("test_always",)).good
        assert one.run(the_proof(root), PYTHON, tree, ("test_half",)).good
    assert len([path for path in (cache / "trees").iterdir() if path.is_dir()]) == 2


def test_the_environment_of_an_interpreter(python: Path) -> None:
    install(python, "something", "1.0")
    interpreters.installed.cache_clear()
    found = interpreters.installed(python)
    assert ("something", "1.0") in found.packages
    assert found.python == sys.version
    assert any(folder.joinpath("pyproject.toml").is_file() for folder in interpreters.installed(PYTHON).editable)


def test_the_environment_has_no_old_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "PYTHONPATH" not in pytest_run.variables()
    assert pytest_run.variables(of_key=True)["CUDA_VISIBLE_DEVICES"] == "0"
    assert "PATH" in pytest_run.variables()
    assert "PATH" not in pytest_run.variables(of_key=True)
    assert os.environ["PYTHONPATH"] == "/somewhere"
