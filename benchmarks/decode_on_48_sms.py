# SPDX-License-Identifier: Apache-2.0
"""Compare two versions of the decode kernels in one run, with a whole GPU and with the 48 multiprocessors of a DGX Spark.

    PYTHONPATH=tools:kernels python benchmarks/decode_on_48_sms.py BEFORE [--layers 36] [--replays 50]

BEFORE is a folder with the headers (*.cuh) of the other version, for example from `stack checkout flashinfer` of an older stack. It needs
one GPU of SM90 and the CUDA toolkit that the stack compiles with. The output has a line for each version and number of tokens.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from laboratory.variants import building

TOKENS = ("1", "2", "4", "8", "16")


def main() -> int:
    """Build the program with both versions and run it twice: on all multiprocessors, and on 48 of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="folder with the other version's headers")
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--replays", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        built = building.main([str(program), "--architecture", options.architecture, "--variant", f"before={options.before}"])
        if built:
            return built
        for ways in ((), ("spark",)):
            run = [program, str(options.layers), str(options.replays), "experts", *TOKENS, *ways]
            if code := subprocess.run(run, check=False).returncode:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
