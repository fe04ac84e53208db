# SPDX-License-Identifier: Apache-2.0
"""The plug-in that docs/plug-ins.md shows, installed as it stands there, on a project in Rust; and one for a project in C."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomlkit

from stack.base.errors import StackError
from stack.carry.check import check
from stack.carry.drift import check_settings
from stack.carry.drift.owners import WORD, pattern
from stack.carry.outcome import Outcome
from stack.carry.rebase import Request, rebase
from stack.carry.upstream_stores import Place, Stores
from stack.model import stack as stacks
from stack.projects import known
from stack.proof import environment
from stack.store.objects import EMPTY_TREE, Entry
from stack.wheels.change import ChangeKind, classify

from ..carry.conftest import scratch
from ..carry.trees import Scratch
from ..store.factories import Remote
from .plugging import entry, install

__all__ = ["scratch"]

PAGE = (Path(__file__).parents[2] / "docs/plug-ins.md").read_text()
SERIES = (
    'title = "Run it"\nwhy = "Nobody else does."\nstate = "draft"\n[[patch]]\nupstream = "ferry"\nfile = "ferry/run.patch"\n'
)
COMPOSE = """\
services:
  ferry:
    command: ["ferry", "serve", "--port=80", "--speed", "3"]
    environment:
      FERRY_TRACE: "1"
      FERRY_TRAKC: "1"
"""


def block(language: str) -> str:
    """The one block of the page in a language."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def rust(variable: str, flag: str, tide: str) -> dict[str, bytes]:
    """The files of a release: a variable that it reads, a flag that it takes, the version of `tide` that it requires."""
    source = f'fn main() {{ std::env::var("{variable}"); }}\n#[arg(long = "{flag}")]\n'
    return {"src/ferry.rs": source.encode(), "Cargo.toml": f'[dependencies]\ntide = "={tide}"\nserde = "1"\n'.encode()}


@pytest.fixture
def ferry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of the page."""
    project = tomlkit.parse(block("toml")).unwrap()["project"]
    [(group, entries)] = project["entry-points"].items()
    assert group == known.GROUP
    text = "".join(entry(name, value) for name, value in entries.items())
    install(tmp_path / "site", monkeypatch, project["name"], text, block("python"))
    yield
    known.forget()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A stack on ferry 1.0 and tide 1.0 with one patch, a script that sets a variable; 2.0 knows other names."""
    remotes = {name: Remote(tmp_path / name) for name in ("ferry", "tide")}
    releases = {
        "ferry": {"1.0": rust("FERRY_TRACE", "port", "1.0"), "2.0": rust("FERRY_TRACING", "listen", "1.1")},
        "tide": {"1.0": {"tide.rs": b"1\n"}, "1.1": {"tide.rs": b"2\n"}},
    }
    commits = {}
    for name, remote in remotes.items():
        for tag, files in releases[name].items():
            commits[name, tag] = remote.commit(files, f"Release {tag}")
            remote.tag(tag)
    remotes["ferry"].git("checkout", "--quiet", "--detach", "1.0")
    fork = remotes["ferry"].commit(
        releases["ferry"]["1.0"] | {"run.sh": b"export FERRY_TRACE=1\nexec ferry serve --port 80\n"}, "Run"
    )
    patch = remotes["ferry"].git(
        "format-patch", "--full-index", "--no-stat", "--no-signature", "--zero-commit", "-1", "--stdout", fork
    )
    remotes["ferry"].git("checkout", "--quiet", "main")
    root = tmp_path / "root"
    (root / "stacks/mine/ferry").mkdir(parents=True)
    (root / "stacks/mine/ferry/run.patch").write_text(f"{patch.rstrip()}\n")
    (root / "stacks/mine/series.toml").write_text(SERIES)
    (root / "stacks/stack.toml").write_text('series = ["mine"]\nplugins = ["ferry"]\n')
    pins = (
        f'[{name}]\ngit = "{remote.url}"\ntag = "1.0"\ncommit = "{commits[name, "1.0"]}"\n' for name, remote in remotes.items()
    )
    (root / "pins.toml").write_text("".join(pins))
    (root / "docker").mkdir()
    (root / "docker/compose.yaml").write_text(COMPOSE)
    (root / "docker/start.sh").write_text("exec ferry serve --swift\nexec ferry stop --now\n")
    return root


@pytest.fixture
def opened(root: Path, tmp_path: Path, ferry: None) -> Iterator[Stores]:
    with Stores(stacks.load(root), Place(tmp_path / "cache")) as stores:
        yield stores


def test_a_release_that_dropped_a_variable_and_requires_another_version(opened: Stores) -> None:
    done = rebase(opened, Request("ferry", "2.0"))
    [row] = done.rows()
    assert row.outcome is Outcome.DRIFTED
    assert [(one.path, one.line, one.problem) for one in row.drifts] == [
        ("run.sh", 1, "the upstream no longer knows the environment variable FERRY_TRACE: the nearest is FERRY_TRACING")
    ]
    assert [need.sentence(opened.stack.pins.get("tide")) for need in done.unmet] == [
        "ferry 2.0 names tide==1.1 (Cargo.toml), the pin is 1.0"
    ]


def test_settings_that_the_tree_does_not_know(opened: Stores) -> None:
    assert [(Path(one.path).name, one.line, one.problem) for one in check(opened)] == [
        ("compose.yaml", 3, "`ferry serve` has no flag --speed in this tree"),
        ("compose.yaml", 6, "nothing in this tree reads the environment variable FERRY_TRAKC: the nearest is FERRY_TRACE"),
        ("start.sh", 1, "`ferry serve` has no flag --swift in this tree"),
    ]


def test_which_changes_need_a_compiler(ferry: None) -> None:
    assert classify("ferry", ["src/ferry.py"]).kind is ChangeKind.COMPILED
    assert classify("ferry", ["examples/a.rs"]).kind is ChangeKind.PYTHON
    assert classify("tide", ["examples/a.rs"]).kind is ChangeKind.COMPILED


def test_the_stack_names_it(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"names the plug-in 'ferry', which is not installed \(installed: .*vllm\)"):
        Stores(stacks.load(root), Place(tmp_path / "cache"))


HARBOR = r"""
import re
from stack.projects import Owner, Project, Required

class Harbor(Project):
    def required(self, read):
        text = (read("CMakeLists.txt") or b"").decode()
        for name, version in re.findall(r"find_package\((\w+) ([\d.]+) EXACT", text):
            yield Required(name, version, "CMakeLists.txt")

    def owners(self):
        return (Owner("HARBOR_", "harbor", ("src/harbor.c",), table="src/settings.def"),)

    def base_package(self):
        return "NumPy"

project = Harbor()
"""


def test_a_project_in_c(scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It declares its variables in a table, and its proofs run on the numpy that CMake looks for."""
    install(tmp_path / "site", monkeypatch, "harbor-for-stack", entry("harbor", "harbor_for_stack:project"), HARBOR)
    files = {
        "src/harbor.c": 'int main() { getenv("HARBOR_DEPTH"); }\n',
        "src/settings.def": "HARBOR_PORT: 80\n",
        "CMakeLists.txt": "find_package(numpy 1.26 EXACT)\n",
    }
    entries = {path: Entry(0o100644, scratch.objects.write_blob(text.encode())) for path, text in files.items()}
    tree = scratch.objects.replaced(EMPTY_TREE, entries)
    names = ["HARBOR_PORT", "HARBOR_DEPTH", "HARBOR_PROT", "FERRY_X", "VLLM_X"]
    try:
        unknown = check_settings(scratch.objects, tree, names, ["--port"])
        assert [(one.name, one.near) for one in unknown] == [("HARBOR_PROT", "HARBOR_PORT")]
        assert environment.of_tree(scratch.objects, tree) == environment.Base("numpy", "1.26")
        assert pattern(WORD).findall("HARBOR_PORT=1 VLLM_PORT=2 OTHER_PORT=3") == ["HARBOR_PORT", "VLLM_PORT"]
    finally:
        known.forget()


@pytest.mark.parametrize("prefix", ["", "ferry_", ".*"])
def test_a_prefix_is_the_start_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    module = HARBOR.replace('"HARBOR_"', repr(prefix))
    install(tmp_path / "site", monkeypatch, f"odd-{len(prefix)}", entry("odd", f"odd_{len(prefix)}:project"), module)
    with pytest.raises(StackError, match=r"the project plug-in Harbor failed .*is not the start of an environment variable"):
        known.owners()
    known.forget()
