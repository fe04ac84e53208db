# SPDX-License-Identifier: Apache-2.0
"""Where there is no GPU, the benchmark says so in one line and measures nothing."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    path = f"{ROOT / 'tools'}:{ROOT / 'kernels'}"
    command = [sys.executable, "-m", "laboratory.decoding", "--quick", "--json", str(out)]
    environment = os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    expected = "decode_kernels: needs torch and an NVIDIA GPU from SM80 on, but torch finds none\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert not out.exists()
