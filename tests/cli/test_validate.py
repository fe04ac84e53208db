# SPDX-License-Identifier: Apache-2.0
"""`stack validate bench` and `quality` as a user runs them, on a small world and small servers."""

import contextlib
import json
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stack.model import digest
from stack.model import verdict as verdicts
from stack.model.ids import Sha256
from stack.model.verdict import load
from stack.store import cache
from stack.validation.bench import benchy
from stack.validation.suite import ValidatedSubject, begun

from ..carry.world import World
from ..validation.bench.server import Behaviour, serving, tokenizer
from ..validation.quality.server import Behaviour as Scoring
from ..validation.quality.server import serving as scoring
from .conftest import Ran, Stack, command, run_apart
from .test_verbs import parsed

SIZE = ("--pp", 256, "--tg", 16, "--runs", 3)


@pytest.fixture(scope="module")
def python() -> Path:
    return benchy.python(cache.root(), print)


@pytest.fixture
def prepared(python: Path, world: World) -> World:
    """A world whose cache has the environment of the user's own cache, which takes a minute to make."""
    (world.cache / "environments").mkdir(parents=True, exist_ok=True)
    place = world.cache / "environments" / python.parents[1].name
    if not place.exists():
        place.symlink_to(python.parents[1])
    return world


@pytest.mark.slow
@pytest.mark.images
def test_bench(stack: Stack, prepared: World, tmp_path: Path) -> None:
    words, out = tokenizer(tmp_path), tmp_path / "v.json"

    def bench(url: str, *args: object) -> Ran:
        return stack("validate", "bench", "--url", url, "--tokenizer", words, *SIZE, "--out", out, *args)

    with serving(Behaviour()) as url:
        first = bench(url, "--weights", "tiny", "--record")
        assert first.code == 0, first
        assert "| little | pp256 | " in first.out
        [recorded] = (prepared.root / "validation/baselines").glob("*-little.toml")
        assert first.out.endswith(f"recorded: {recorded}\nverdict: {out}\n")
        assert load(out).weights == "tiny"
        assert load(out).versions["bench"] == "llama-benchy 0.4.0"
        again = bench(url, "--weights", "tiny", "--json")
        against = [case for case in parsed(again)["verdict"]["cases"] if "against" in case["name"]]
        assert {case["name"] for case in against} == {
            f"bench/against/{recorded.stem}/{size}" for size in ("pp256", "pp256-tg16")
        }
        assert {case["measured"]["outcome"] for case in against} <= {"same", "better", "worse", "not comparable"}
        assert json.loads(out.read_text()) == parsed(again)["verdict"]
        assert {case["outcome"] for case in parsed(again)["verdict"]["cases"] if case["name"] == "bench/stack"} == {"not-run"}
        unsaid = bench(url, "--json")
        assert {case["outcome"] for case in parsed(unsaid)["verdict"]["cases"] if "against" in case["name"]} == {"not-run"}
    # The same speed, recorded as twice as fast: now it is worse.
    text = recorded.read_text()
    head, _, decode = text.partition("[decode.16]")
    recorded.write_text(f"{head}[decode.16]\n256 = [400.0, 400.1, 399.9]\n")
    assert decode
    with serving(Behaviour()) as url:
        worse = bench(url, "--weights", "tiny")
        assert worse.code == 1
        assert "worse than recorded with the stack" in worse.out
    ours = f"0.32.0+sm121.g{digest.of(prepared.load())[:8]}"
    for version, outcome in ((ours, "passed"), ("0.32.0+sm121.g00000000", "failed")):
        with serving(Behaviour(version=version)) as url:
            [case] = parsed(bench(url, "--only", "bench/stack", "--json"))["verdict"]["cases"]
            assert (case["outcome"], case["measured"]) == (outcome, {"version": version})
    with serving(Behaviour(lie="stops early")) as url:
        recorded.unlink()
        lied = bench(url, "--weights", "dummy", "--record")
        assert lied.code == 1
        assert "not recorded: bench/pp256-tg16 was not measured" in lied.out
        assert not recorded.exists()
        assert bench(url, "--weights", "tiny").code == 0
    with serving(Behaviour(lie="no tokens")) as url:
        assert bench(url, "--weights", "tiny").code == 1


@pytest.mark.slow
@pytest.mark.images
def test_bench_says_what_is_wrong(stack: Stack, prepared: World, tmp_path: Path) -> None:
    assert "does not answer" in stack("validate", "bench", "--url", "http://127.0.0.1:9").refused()
    assert "is not the address of a server" in stack("validate", "bench", "--url", "spark").refused()
    with serving(Behaviour()) as url:
        assert "no tokenizer.json at little" in stack("validate", "bench", "--url", url).refused()
        words = tokenizer(tmp_path)
        ran = stack("validate", "bench", "--url", url, "--tokenizer", words, "--record")
        assert (
            ran.refused()
            == "a baseline names its machine and weights: run this on the machine of the server, and name them with --weights"
        )


def of_command(words: str) -> list[int]:
    """The processes whose command line has these words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if words.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


@pytest.mark.slow
@pytest.mark.images
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_a_bench_that_is_killed_leaves_nobody(prepared: World, tmp_path: Path, kind: signal.Signals) -> None:
    words = tokenizer(tmp_path)
    with serving(Behaviour(lie="hangs")) as url:
        asked = ("validate", "bench", "--url", url, "--tokenizer", words, *SIZE, "--out", tmp_path / "v.json")
        bench = subprocess.Popen(command(prepared, *asked), stdout=subprocess.DEVNULL)
        while len(of_command(str(words))) < 3 and bench.poll() is None:  # itself, the keeper, llama-benchy
            time.sleep(0.05)
        time.sleep(1)
        bench.send_signal(kind)
        assert bench.wait() != 0
        until = time.monotonic() + 30
        while of_command(str(words)) and time.monotonic() < until:
            time.sleep(0.05)
        assert of_command(str(words)) == []


def test_bench_asks_for_a_server(stack: Stack, world: World) -> None:
    assert "name a server with --url, or a recipe" in stack("validate", "bench").refused()
    assert "name a server with --url, or a recipe" in stack("validate", "bench", "--url", "x", "--recipe", "y").refused()
    assert (
        stack("validate", "bench", "--recipe", "nobody")
        .refused()
        .startswith("unknown recipe 'nobody': `stack recipe list` lists all ")
    )
    assert "recipe gpt-oss has no model of ours" in stack("validate", "bench", "--recipe", "gpt-oss").refused()


KERNELS, BENCH, PACK = ("kernels",), ("bench", "--recipe", "cpu-mxfp4"), ("pack",)


@pytest.fixture
def empty(world: World, tmp_path: Path) -> World:
    """A world whose cache is empty: whatever is prepared is seen there."""
    cache = tmp_path / "empty"
    cache.mkdir()
    return replace(world, cache=cache)


def refused(empty: World, *arguments: object) -> str:
    """What a suite says that is refused before anything is prepared."""
    said = run_apart(empty, "validate", *arguments).refused()
    assert list(empty.cache.iterdir()) == []
    return said


@pytest.mark.parametrize(("suite", "what"), [(KERNELS, "verdict"), (BENCH, "verdict"), (PACK, "archive")])
def test_a_place_for_no_file_is_refused_before_anything_is_prepared(
    empty: World, tmp_path: Path, suite: tuple[str, ...], what: str
) -> None:
    assert refused(empty, *suite, "--out", "/dev/null") == "/dev/null is not a regular file: name a file with --out"
    out = tmp_path / "a-file"
    out.touch()
    assert refused(empty, *suite, "--out", out / "x").startswith(f"no {what} can be written to {out / 'x'} (")


@pytest.mark.parametrize(
    ("suite", "glob"),
    [
        (KERNELS, "nope"),
        (KERNELS, "kernels"),
        (KERNELS, "kernels/meo/*"),
        (KERNELS, "serve/*"),
        (KERNELS, "kernels/compile/nobody/*"),
        (BENCH, "nope"),
        (BENCH, "bench/pp512-tg33"),
        (BENCH, "kernels/*"),
    ],
)
def test_only_what_a_suite_has_is_asked_for_before_anything_is_prepared(
    empty: World, tmp_path: Path, suite: tuple[str, ...], glob: str
) -> None:
    asked = ("--only", glob, "--out", tmp_path / "v.json")
    assert refused(empty, *suite, *asked) == f"no case matches {glob}: see --help"


@pytest.mark.parametrize("suite", [KERNELS, BENCH])
def test_a_verdict_of_another_stack_is_not_resumed(empty: World, tmp_path: Path, suite: tuple[str, ...]) -> None:
    out = tmp_path / "v.json"
    other = replace(begun(empty.load(), ValidatedSubject()), stack=Sha256("2" * 64))
    out.write_bytes(verdicts.write(other))
    said = refused(empty, *suite, "--resume", "--out", out)
    assert said.startswith(f"{out} cannot be resumed: it is of the stack 222222222222, this one is ")
    assert load(out) == other


def test_quality(stack: Stack, world: World, tmp_path: Path) -> None:
    def quality(*args: object) -> Ran:
        return stack("validate", "quality", "--out", tmp_path / "v.json", *args)

    assert "bf16 is not recorded: start a server" in quality().out
    assert quality("--recipe", "nobody").refused().startswith("unknown recipe 'nobody'")
    assert "with --url, or a recipe" in quality("--recipe", "cpu-fp32", "--url", "http://127.0.0.1:1", "--as", "bf16").refused()
    for name, noise in (("bf16", 0.0), ("o-fp8", 0.1)):
        with scoring(Scoring(noise=noise)) as url:
            ran = quality("--url", url, "--as", name, "--weights", "tiny")
            assert ran.code == 0, ran
    cases = {case["name"]: case for case in parsed(quality("--json"))["verdict"]["cases"]}
    assert cases["quality/o-fp8"]["outcome"] == "passed"
    assert 0 < cases["quality/o-fp8"]["measured"]["KL"] < cases["quality/o-fp8"]["bar"]
    assert cases["quality/qkv-mxfp4"]["outcome"] == "not-run"
    with scoring(Scoring()) as url:
        ignored = quality("--url", url, "--as", "qkv-mxfp4")
        assert ignored.code == 1
        assert "nothing was quantized" in ignored.out
        assert quality("--url", url).refused().startswith("--url and --as go together")
        assert quality("--url", url, "--as", "../x").refused().startswith("--as '../x': use letters")
        text = tmp_path / "text"
        text.write_bytes(b"\xff")
        assert quality("--text", text).refused().endswith("is not UTF-8 (byte 0): save it as UTF-8")
