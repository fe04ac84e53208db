# SPDX-License-Identifier: Apache-2.0
"""Run proofs on trees, and keep each result under the hash of everything that it depends on."""

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model.ids import Sha256, TreeId
from stack.model.proof_command import ProofCommand
from stack.proof import brought_tests, command_run, fork_server, interpreters, pytest_run, sources, trees
from stack.proof.proof_module import Proof
from stack.proof.pytest_run import Case, Run, Servers
from stack.store import results

KIND = "proofs"
"""The folder of the kept results."""
_PRINTED = 2**20
"""Characters of pytest's output that are kept, from the end; a proof that prints a table needs most of them."""
_COMPILER_SECONDS = 10


class Runner:
    """Runs proofs of one stack, and counts new and reused results. A context manager."""

    def __init__(self, stores: Stores, *, again: bool = False) -> None:
        """Open the kept results; `again` ignores those of earlier commands and runs everything once more."""
        self.stores = stores
        self.cached = 0
        self.ran = 0
        self._again = again or results.again()
        self._results = results.results(stores.place.cache, KIND)
        self._own: dict[Sha256, Run] = {}  # this command's results; it asks for some more than once
        self._counted: set[Sha256] = set()
        self._folders: dict[str, trees.MovingFolder] = {}
        self._exit = contextlib.ExitStack()
        self._servers = self._exit.enter_context(Servers())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._exit.close()

    def run(
        self, proof: Proof, python: Path, tree: TreeId, tests: Sequence[str] = (), needed: Sequence[str] | None = None
    ) -> Run:
        """Run a proof on a tree: its module, and the tests of upstream's own test files that it names.

        Args:
            proof: The proof.
            python: The interpreter.
            tree: The tree.
            tests: Run the tests whose names contain one of these; all if empty.
            needed: The tests whose results matter: a run is kept for them even if another test was skipped, and if an earlier
                run has no result for them, only they run again. Default: `tests`.

        Raises:
            StackError: The tree cannot be written, or the preload file fails.

        """
        if proof.command is not None:
            return self._once_command(proof, proof.command, python, tree)
        own, brought = brought_tests.apart(tests)
        own_needed, brought_needed = brought_tests.apart(tests if needed is None else needed)
        every = brought or (() if tests else brought_tests.apart(name for names in proof.proves.values() for name in names)[1])
        runs = [self._run_module(proof, python, tree, own, own_needed)] if own or not brought else []
        if every:
            runs.append(self._run_brought(proof, python, tree, every, brought_needed))
        return pytest_run.combined(runs)

    def _run_module(self, proof: Proof, python: Path, tree: TreeId, tests: Sequence[str], matter: Sequence[str]) -> Run:
        # Select by -k, not by node id: with one missing id pytest would run no test at all.
        arguments = [str(proof.path), *(["-k", " or ".join(tests)] if tests else [])]
        modules = (proof.path, proof.path.with_name("conftest.py"), proof.path.with_name(pytest_run.PRELOAD))
        alone = None if not matter or {*matter} == {*tests} else lambda: self._run_module(proof, python, tree, matter, matter)
        return self._once(
            proof, python, tree, modules, arguments, keeps=lambda run: run.whole or run.decides(matter), alone=alone
        )

    def _run_brought(self, proof: Proof, python: Path, tree: TreeId, tests: Sequence[str], matter: Sequence[str]) -> Run:
        """Run tests of upstream's own test files, as far as the tree has these files."""
        objects = self.stores.objects(proof.upstream)
        here = tuple(test for test in tests if objects.entry(tree, test.partition("::")[0]) is not None)
        if not here:
            return Run((), "the tree has none of the test files", 0)
        arguments = [*proof.upstream_args, "-k", brought_tests.expression(here)]
        alone = None if not matter or {*matter} == {*tests} else lambda: self._run_brought(proof, python, tree, matter, matter)
        return self._once(
            proof,
            python,
            tree,
            _modules_of_upstream_runs(proof),
            arguments,
            brought_tests.files(here),
            keeps=lambda run: run.whole or run.decides(matter),
            alone=alone,
            qualified=True,
        )

    def _once_command(self, proof: Proof, command: ProofCommand, python: Path, tree: TreeId) -> Run:
        root = self.stores.stack.root.resolve()

        def key() -> Sha256 | None:
            shared = self._shared(python)
            return None if shared is None else results.key({"tree": tree, **command_run.key(command, root), **shared})

        def run() -> Run:
            return command_run.run(command, self._folder(proof.upstream).at(tree), python, root)

        return self._kept(key, run, keeps=lambda run: run.whole)

    def run_upstream(self, proof: Proof, python: Path, tree: TreeId) -> Run:
        """Run the upstream's own tests that a proof names, on a tree.

        Raises:
            StackError: As for `run`.

        """
        # A run of upstream's own tests is kept with its skips.
        return self._once(
            proof,
            python,
            tree,
            _modules_of_upstream_runs(proof),
            proof.upstream_args,
            proof.upstream_tests,
            keeps=lambda run: run.settled,
        )

    def _once(
        self,
        proof: Proof,
        python: Path,
        tree: TreeId,
        modules: Sequence[Path],
        arguments: Sequence[str],
        of_tree: Sequence[str] = (),
        *,
        keeps: Callable[[Run], bool],
        alone: Callable[[], Run] | None = None,
        qualified: bool = False,
    ) -> Run:
        def run() -> Run:
            folder = self._folder(proof.upstream).at(tree)
            whole = [*arguments, *(str(folder / test) for test in of_tree)]
            files = of_tree if qualified else ()
            return self._servers.run(python, folder, proof.path.parent, whole, rootdir=folder if of_tree else None, files=files)

        asked = [*arguments, *of_tree, *(["with the file's name"] if qualified else [])]
        return self._kept(lambda: self._key(proof, python, tree, modules, asked), run, keeps=keeps, alone=alone)

    def _kept(
        self,
        key: Callable[[], Sha256 | None],
        run: Callable[[], Run],
        *,
        keeps: Callable[[Run], bool],
        alone: Callable[[], Run] | None = None,
    ) -> Run:
        """Return the result that is kept under a key if `keeps` accepts it, or else run, and keep what `keeps` accepts.

        `alone` runs instead if the kept result does not say what matters: it repeats nothing that is known.
        """
        name = key()
        known = None if name is None else self._own.get(name) or self._known(name)
        if name is not None and known is not None:
            self._own[name] = known
            if not known.cached:  # of this command, which may have asked for other tests of it
                return self._keep(name, known, keeps)
            if keeps(known):
                self.cached += name not in self._counted
                self._counted.add(name)
                return known
            if alone is not None:
                return alone()
        self.ran += 1
        result = run()
        # If a file was edited during the run, either version may have been used: keep nothing.
        if name is not None and name == key():
            self._own[name] = self._keep(name, result, keeps)
        return result

    def _keep(self, name: Sha256, result: Run, keeps: Callable[[Run], bool]) -> Run:
        if keeps(result):
            self._results.put(name, _as_json(result))
        return result

    def _known(self, name: Sha256) -> Run | None:
        """Return the result that an earlier command kept under a key; None if everything is to run again."""
        kept = None if self._again else self._results.get(name)
        return None if kept is None else _from_json(kept)

    def _folder(self, upstream: str) -> trees.MovingFolder:
        if upstream not in self._folders:
            opened = trees.moving(self.stores.objects(upstream), upstream, self.stores.place.cache)
            self._folders[upstream] = self._exit.enter_context(opened)
        return self._folders[upstream]

    def _key(
        self, proof: Proof, python: Path, tree: TreeId, modules: Sequence[Path], arguments: Sequence[str]
    ) -> Sha256 | None:
        """Hash everything that the result depends on; None if the interpreter does not answer (the run then reports why)."""
        shared = self._shared(python)
        if shared is None:
            return None
        root = self.stores.stack.root.resolve()
        files = sources.closure(
            (module for module in modules if module.is_file()), (proof.path.parent, root, root / "tools", root / "kernels")
        )
        return results.key(
            {
                "tree": tree,
                "sources": sources.digest(files, root),
                "pytest": _pytest_options(proof.path.parent),
                "arguments": repr([argument.replace(str(root), "") for argument in arguments]),
                **shared,
            }
        )

    @staticmethod
    def _shared(python: Path) -> dict[str, str] | None:
        """Return the part of a key that any proof's result depends on; None if the interpreter does not answer."""
        try:
            installed = interpreters.installed(python)
        except StackError:
            return None
        return {
            "packages": repr((installed.packages, [_state(folder) for folder in installed.editable])),
            "python": installed.python,
            "machine": _machine(),
            "variables": repr(sorted(pytest_run.variables(of_key=True).items())),
            "runner": _own_code(),
        }


def _modules_of_upstream_runs(proof: Proof) -> tuple[Path, ...]:
    """Return the modules of the proofs' folder that runs of upstream's own tests load."""
    helpers = proof.path.parent
    plugins = [name for option, name in zip(proof.upstream_args, proof.upstream_args[1:], strict=False) if option == "-p"]
    return (helpers / pytest_run.PRELOAD, *(helpers / f"{name}.py" for name in plugins))


def _as_json(run: Run) -> dict[str, Any]:
    return {
        "tests": [asdict(case) for case in run.cases],
        "output": run.output[-_PRINTED:],
        "returncode": run.returncode,
        "lacks": run.lacks,
    }


def _from_json(kept: Mapping[str, Any]) -> Run | None:
    """Rebuild a run from a kept result; None if it is damaged."""
    try:
        cases = tuple(Case(str(test["name"]), str(test["outcome"]), float(test["seconds"])) for test in kept["tests"])
        return Run(cases, str(kept["output"]), int(kept["returncode"]), lacks=str(kept["lacks"]), cached=True)
    except (KeyError, TypeError, ValueError):
        return None


def _pytest_options(folder: Path) -> str:
    """Read pytest's configuration from a folder and its parents: the table in `pyproject.toml`, other files whole."""
    configuration: dict[str, str] = {}
    for depth, place in enumerate((folder, *folder.parents)):
        for name in ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg"):
            if (place / name).is_file():
                configuration[f"{depth} {name}"] = hashlib.sha256((place / name).read_bytes()).hexdigest()
        project = place / "pyproject.toml"
        if project.is_file():
            with contextlib.suppress(tomllib.TOMLDecodeError, UnicodeDecodeError):
                table = tomllib.loads(project.read_text(encoding="utf-8")).get("tool", {}).get("pytest", {})
                configuration[f"{depth} pyproject.toml"] = repr(table)
    return repr(configuration)


def _state(folder: Path) -> str:
    """Hash an editable package's files (path, size, time), since its version does not identify its content."""
    whole = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        for name in sorted(files):
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(place, name))  # noqa: PTH116, PTH118  (tens of thousands of files)
                whole.update(f"{place}/{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


@functools.cache
def _own_code() -> str:
    """Hash the code that starts runs and reads their reports."""
    return sources.digest(
        [Path(file) for file in (fork_server.__file__, pytest_run.__file__, command_run.__file__)], Path(__file__).parent
    )


def _version(compiler: str) -> str:
    path = shutil.which(compiler)
    if path is None:
        return f"no {compiler}"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_COMPILER_SECONDS, check=False)
        return f"{path}: {done.stdout}"
    return f"{path} does not run"


@functools.cache
def _machine() -> str:
    """Describe architecture, CPU features, GPUs, C library and compilers, since proofs may compile and run C++."""
    named = [os.environ.get("CXX"), os.environ.get("CC"), "c++", "g++", "cc", "gcc"]
    versions = [_version(name) for name in dict.fromkeys(filter(None, named))]
    features = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        features = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    gpus = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return repr((platform.machine(), features, gpus, platform.libc_ver(), versions))
