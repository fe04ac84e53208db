#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validate the stack of this archive on this machine's GPU, without network: python3 validate.py [--out FILE].

Needs only Python 3.6 or newer, so that an unsuitable machine gets an error that says so.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
AGAIN = "copy the archive again, and unpack it again"
KEYS = frozenset(("files", "stack", "gpu", "capability", "python", "platform", "torch", "cuda"))
ASK = """
import torch
print(torch.__version__, torch.version.cuda, *(torch.cuda.get_device_capability() if torch.cuda.is_available() else ()))
"""


def main() -> int:
    """Check archive and machine, then run the cases. Exit codes: 0 fine, 1 a case failed, 2 cannot run on this machine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("verdict.json"), help="file of the verdict (default: verdict.json)")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="run the cases whose names match")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the finished cases of an earlier run; a verdict of another stack or machine is refused",
    )
    parser.add_argument("--check", action="store_true", help="check archive and machine, run nothing")
    parser.add_argument(
        "--minutes",
        type=float,
        default=0,
        help="after this time start no server or speed test, and wait for none; kernels' cases all run (default: no limit)",
    )
    options = parser.parse_args()
    about = manifest()
    wrong = (damage(about["files"]) or misfit(about)) if about else "pack.json is missing or damaged: " + AGAIN
    if wrong:
        print(f"validate: {wrong}", file=sys.stderr)
        return 2
    print(f"archive and machine fit: stack {about['stack'][:12]} for {about['gpu']}", flush=True)
    if options.check:
        return 0
    paths = os.pathsep.join(map(str, (HERE / "site", HERE / "tools", HERE / "kernels")))
    # Put compiled bytecode beside the verdict; without it every process takes half a minute to start.
    compiled = options.out.absolute().with_name(f"{options.out.name}.work") / "pycache"
    environment = dict(os.environ, PYTHONPATH=paths, PYTHONPYCACHEPREFIX=str(compiled), PYTHONUNBUFFERED="1")
    subprocess.call([sys.executable, "-m", "compileall", "-qq", "-j0", str(HERE / "site")], env=environment)
    command = [
        sys.executable,
        "-m",
        "laboratory.target.runner",
        "--root",
        str(HERE),
        "--out",
        str(options.out.absolute()),
    ]
    command += ["--minutes", str(options.minutes)] + ["--resume"] * options.resume
    for glob in options.only:
        command += ["--only", glob]
    return subprocess.call(command, env=environment)


def manifest() -> "dict[str, Any]":
    """Read the archive's manifest; empty if it is missing, cut off, or invalid."""
    try:
        about = json.loads((HERE / "pack.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) and KEYS.issubset(about) else {}


def damage(packed: "dict[str, str]") -> str:
    """Name a file whose SHA-256 differs from the packed file's; empty if there is none."""
    for path, expected in packed.items():
        try:
            found = hashlib.sha256((HERE / path).read_bytes()).hexdigest()
        except OSError:
            return f"{path} is missing: {AGAIN}"
        if found != expected:
            return f"{path} differs from the packed file: {AGAIN}"
    return ""


def misfit(about: "dict[str, Any]") -> str:
    """Return why the archive is not for this machine; empty if it is."""
    if list(sys.version_info[:2]) != about["python"]:
        wanted = ".".join(map(str, about["python"]))
        return f"this is Python {sys.version_info[0]}.{sys.version_info[1]}: the archive is for {wanted}"
    if platform.machine() != about["platform"]:
        return f"this machine is {platform.machine()}: the archive is for {about['platform']}"
    done = subprocess.run([sys.executable, "-c", ASK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)  # noqa: UP022
    printed = done.stdout.decode().split()
    if done.returncode or len(printed) < 2:
        return f"torch cannot be imported ({' '.join(done.stderr.decode().split()[-12:])})"
    return other_torch(about, printed[0], printed[1]) or other_gpu(about, ".".join(printed[2:]))


def other_torch(about: "dict[str, Any]", version: str, cuda: str) -> str:
    """Return why vLLM's libraries do not load with this torch; empty if they do."""
    if [int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:2]] < about["torch"]:
        return f"torch is {version}: the archive needs {'.'.join(map(str, about['torch']))} or newer"
    if cuda.split(".", maxsplit=1)[0] != str(about["cuda"]):
        return f"torch is built for CUDA {cuda}: the archive needs CUDA {about['cuda']}"
    return ""


def other_gpu(about: "dict[str, Any]", capability: str) -> str:
    """Return why the archive's kernels do not run on this GPU; empty if they do."""
    if capability == about["capability"]:
        return ""
    here = f"the GPU has compute capability {capability}" if capability else "torch sees no GPU"
    return f"{here}: the archive is for {about['capability']}"


if __name__ == "__main__":
    sys.exit(main())
