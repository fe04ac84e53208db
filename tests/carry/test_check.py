# SPDX-License-Identifier: Apache-2.0
"""What the stack relies on and is not there: in patches, recipes and compose files; and what a moving branch would break."""

import shutil
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import workspace
from stack.carry.check import check
from stack.carry.drift.named import named
from stack.carry.drift.tree import Files
from stack.carry.forecast import NIGHTLY, forecast
from stack.carry.outcome import Outcome
from stack.carry.rebase import Conclusion, Request, conclude, rebase
from stack.model import digest, document, series
from stack.model.pins import Source
from stack.store.cache import upstream_store

from ..store.factories import Remote
from .test_worktree import user_git
from .trees import FILE, Scratch
from .world import GAMMA, World

RECIPE = """\
model = "openai/gpt-oss-120b"  # --not-this
# VLLM_NOT_THIS
flags = [
    "--kv-cache-dtype=fp8",
    "--no-such-flag",
]
other = "--neither"
arguments = [
    "--one", '{"linear":"mxfp4"}',
]
env = { VLLM_USE_IT = "1" }
"""
COMPOSE = """\
services:
  vllm:
    command: vllm serve model
      --port 8000
    environment:
      - FLASHINFER_X=1
    healthcheck:
      test: curl --fail localhost
  two:
    command:
      - "--two"
      - --three.four=5
    image: x
"""


def test_what_recipes_and_compose_files_name() -> None:
    assert [(one.line, one.name) for one in named("r.toml", RECIPE)] == [
        (4, "--kv-cache-dtype"),
        (5, "--no-such-flag"),
        (9, "--one"),
        (11, "VLLM_USE_IT"),
    ]
    assert [(one.line, one.name) for one in named("c.yaml", COMPOSE)] == [
        (4, "--port"),
        (6, "FLASHINFER_X"),
        (11, "--two"),
        (12, "--three.four"),
    ]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ('moe = "VLLM_CUTLASS"', []),
        ("moe: 'VLLM_CUTLASS'", []),
        ('"--moe-backend", "VLLM_CUTLASS"', []),
        ("--moe-backend VLLM_CUTLASS", []),
        ("--moe-backend=VLLM_CUTLASS", []),
        ('run = "VLLM_CUTLASS=1 serve"', ["VLLM_CUTLASS"]),
        ("--env VLLM_CUTLASS", ["VLLM_CUTLASS"]),
        ('"--env=VLLM_CUTLASS"', ["VLLM_CUTLASS"]),
        ("-e VLLM_CUTLASS", ["VLLM_CUTLASS"]),
        ("- VLLM_CUTLASS", ["VLLM_CUTLASS"]),
        ('passed = ["VLLM_CUTLASS"]', ["VLLM_CUTLASS"]),
        ("VLLM_CUTLASS: ${VLLM_OTHER}", ["VLLM_CUTLASS", "VLLM_OTHER"]),
        ("{ VLLM_CUTLASS = 'VLLM_OTHER' }", ["VLLM_CUTLASS"]),
    ],
)
def test_the_value_of_a_key_or_a_flag_is_no_variable(line: str, names: list[str]) -> None:
    assert [one.name for one in named("r.toml", line)] == names


def add_patch(world: World, scratch: Scratch, path: str, content: bytes) -> None:
    """One more patch of gamma at the end of series two; it adds a file."""
    base = {name: (FILE, data) for name, data in GAMMA["v2.0"].items()}
    commits = scratch.commits((base, None, "base\n"), (base | {path: (FILE, content)}, 0, "Rely\n\nSigned-off-by: A <a@x>\n"))
    (world.root / "stacks/two/gamma/rely.patch").write_bytes(scratch.format_patch(commits[0], commits[1])[0])
    file = world.root / "stacks/two/series.toml"
    file.write_text(document.read_text(file) + '[[patch]]\nupstream = "gamma"\nfile = "gamma/rely.patch"\n')
    assert series.load(file.parent).patches


def test_a_patch_that_relies_on_what_is_not_there(world: World, scratch: Scratch) -> None:
    with world.stores() as stores:
        assert check(stores) == ()
    add_patch(world, scratch, "gamma/rely.py", b"import os\nfrom .quant_utils import pack\n")
    with world.stores() as stores:
        (finding,) = check(stores)
    assert (finding.source, finding.place) == ("stacks/two/gamma/rely.patch", "gamma/rely.py:2")
    assert "gamma.quant_utils" in finding.problem


def test_settings_are_held_against_the_tree_that_answers_for_them(world: World) -> None:
    folder = world.root / "validation/recipes"
    folder.mkdir(parents=True)
    (folder / "one.toml").write_text('env = { VLLM_NOT_HERE = "1" }\n')
    with world.stores() as stores:
        assert check(stores) == ()  # no vLLM among these upstreams: nobody answers for its names
        with pytest.raises(StackError, match=r"none\.toml cannot be read"):
            check(stores, [world.root / "none.toml"])


@pytest.mark.parametrize("source", ["archive", "git"])
def test_a_forecast_writes_nothing(world: World, source: Source) -> None:
    before = world.files()
    with world.stores(source) as stores:
        found = {one.upstream: one for one in forecast(stores, None, NIGHTLY)} if source == "git" else {}
        found |= {one.upstream: one for one in forecast(stores, "gamma", NIGHTLY)}
        (quiet,) = forecast(stores, "gamma", "v2.1")
        with pytest.raises(StackError, match="is a revision of one upstream: name it: gamma, alpha"):
            forecast(stores, None, "v2.1")
    assert found["gamma"].breaks
    assert not quiet.breaks
    assert found["gamma"].revision == ("v2.2" if source == "archive" else world.commits["gamma v2.2"])
    assert world.files() == before


def test_a_branch_is_what_it_is_now(world: World) -> None:
    url = world.load().pins.get("gamma").git
    remote = Remote.__new__(Remote)
    remote.path, remote.url = Path(url.removeprefix("file://")), url
    head = remote.git("rev-parse", "HEAD")
    remote.git("branch", "--force", "release", world.commits["gamma v2.1"])
    try:
        with world.stores("git") as stores:
            (found,) = forecast(stores, "gamma", "release")
            assert (found.revision, found.breaks) == (world.commits["gamma v2.1"], False)
            remote.git("branch", "--force", "release", head)
            (found,) = forecast(stores, "gamma", "release")
            assert (found.revision, found.breaks) == (head, True)
    finally:
        remote.git("branch", "-D", "release")


def test_a_rebase_climbs_the_releases_between(world: World) -> None:
    for source in ("archive", "git"):
        with world.stores(source) as stores:  # type: ignore[arg-type]
            done = rebase(stores, Request("gamma", "v2.2", with_required=True, through=("auto",)))
        gamma = next(leg for leg in done.legs if leg.upstream == "gamma")
        assert [rung.name for rung in gamma.carry.rungs] == ["v2.1", "v2.2"]
        alpha = next(leg for leg in done.legs if leg.upstream == "alpha")
        assert [rung.name for rung in alpha.carry.rungs] == ["v1.1", "v1.2", "v1.3"]
        rows = {row.patch.ref.path: row for row in done.rows()}
        # `fix-limit` is in v2.1, and v2.2 has the line otherwise: without the rung it is a conflict.
        fix = rows["two/gamma/fix-limit.patch"]
        assert (fix.outcome, fix.rung) == (Outcome.LANDED, "v2.1")
        hook = rows["one/gamma/hook-main.patch"]
        assert (hook.outcome, hook.rung) == (Outcome.CONFLICT, "v2.2")
        named_ = [one.commit for one in hook.conflicts[0].upstream]
        assert named_ == [gamma.carry.onto if source == "archive" else world.commits["gamma v2.2"]]


def test_drift_stops_a_rebase_until_it_is_allowed(world: World, scratch: Scratch, tmp_path: Path) -> None:
    add_patch(world, scratch, "gamma/rely.py", b"from .old import pack\n")
    before = world.files()
    with world.stores() as stores:
        assert check(stores) == ()
        done = rebase(stores, Request("gamma", "v2.1", with_required=True))
        (row,) = (row for row in done.rows() if row.outcome is Outcome.DRIFTED)
        assert row.patch.ref.path == "two/gamma/rely.patch"
        assert [(drift.path, drift.line) for drift in row.drifts] == [("gamma/rely.py", 1)]
        assert [one.subject for one in row.drifts[0].upstream] == ["v2.1"]
        assert conclude(done) is Conclusion.DRIFT
        assert world.files() == before
        allowed = {"allow_mismatch": False, "allow_drift": False}
        workspace.start(tmp_path / "work", stores, done, **allowed, digest=digest.exact(stores.stack))
    (tmp_path / "work/gamma/rely.py").write_text("pack = None\n")
    user_git(tmp_path / "work", "add", "gamma/rely.py")
    session = workspace.load(tmp_path / "work")
    with world.stores() as stores:
        mended, _ = workspace.proceed(tmp_path / "work", stores, session, digest=digest.exact(stores.stack))
        assert conclude(mended) is Conclusion.SWITCHED
        assert check(stores) == ()
    assert "+pack = None" in world.read("stacks/two/gamma/rely.patch")


def test_drift_that_is_allowed_switches(world: World, scratch: Scratch) -> None:
    add_patch(world, scratch, "gamma/rely.py", b"from .old import pack\n")
    with world.stores() as stores:
        done = rebase(stores, Request("gamma", "v2.1", with_required=True))
        assert conclude(done, allow_drift=True) is Conclusion.SWITCHED


def test_one_source_does_not_change_what_another_shows(world: World) -> None:
    """A partial clone in the same store leaves the trees of archives as they are: whole, and read as a whole."""

    def shown() -> tuple[bool, object]:
        with world.stores() as stores:
            objects, commit = stores.objects("gamma"), stores.obtain("gamma").commit
            return Files(objects, objects.tree_of(commit)).promised, [str(one) for one in check(stores)]

    store = upstream_store(world.cache, "gamma")
    shutil.rmtree(store)
    before = shown()
    assert before[0] is False
    with world.stores("git") as stores:
        fetched = stores.obtain("gamma", "v2.2")
        assert list((store / "objects/pack").glob("*.promisor"))
        objects = stores.objects("gamma")
        assert Files(objects, objects.tree_of(fetched.commit)).promised
    assert shown() == before
