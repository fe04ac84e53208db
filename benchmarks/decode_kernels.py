# SPDX-License-Identifier: Apache-2.0
"""How fast the decode kernels are beside Marlin, triton_kernels, cuBLAS and FlashInfer's for SM90, in one run on one GPU from SM80 on.

    PYTHONPATH=tools python benchmarks/decode_kernels.py [--quick] [--json FILE]

Every figure is the median of many replays of a CUDA graph that holds many layers back to back, each with weights of its own, so that
nothing comes from the cache (no goal is judged by a graph that reads less than eight times an H200's L2); shares are of the bandwidth of a
copy in this very run. Routes are random and uniform, from a seed that is printed. The first layer's output of every kernel is held
against float32 before it is timed, and what ours computed in the last replay, by bits, against each layer by itself. What is not
installed is a row that says so.
Goals are those of docs/decode-kernels.md. Exit code 1 where one is missed or a kernel fails, 2 where there is no such GPU.
"""

import sys

from stack.validation.decoding.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
