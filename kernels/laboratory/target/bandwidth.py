# SPDX-License-Identifier: Apache-2.0
"""Measure how fast this GPU reads and copies its memory: `python -m laboratory.target.bandwidth` prints 10^9 bytes a second as JSON.

A token of one request reads every weight that it needs once, so the rate of reading is the limit of its speed.
"""

import json
import statistics
import sys
from collections.abc import Callable

_LARGEST = 4 * 2**30
"""Bytes that are read: many times any cache."""
_SHARE = 8
"""At most this part of the free memory is taken: where CPU and GPU share it, others need the rest."""
_WARM, _RUNS, _REPEATS = 3, 7, 10


def main() -> int:
    """Measure and print; return 2 if there is no GPU."""
    import torch  # noqa: PLC0415 - without it the module can still be read

    if not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        return 2
    size = min(_LARGEST, torch.cuda.mem_get_info()[0] // _SHARE) // 16 * 16
    source = torch.ones(size // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    found = {
        "GB/s read": _rates(size, source.sum),
        "GB/s copied": _rates(2 * size, lambda: target.copy_(source)),
    }
    print(json.dumps({"bytes": size, **found}))
    return 0


def _rates(moved: int, step: Callable[[], object]) -> list[float]:
    """Return 10^9 bytes per second of each run."""
    import torch  # noqa: PLC0415

    for _ in range(_WARM):
        step()
    rates = []
    for _ in range(_RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_REPEATS):
            step()
        end.record()
        torch.cuda.synchronize()
        rates.append(moved * _REPEATS / (begin.elapsed_time(end) * 1e6))
    return rates


def measured(printed: str) -> dict[str, float | str]:
    """Read what `main` printed: medians, and all runs.

    Raises:
        ValueError, KeyError, TypeError: it is something else.

    """
    found = json.loads(printed)
    result: dict[str, float | str] = {"bytes": float(found["bytes"])}
    for name in ("GB/s read", "GB/s copied"):
        runs = [float(rate) for rate in found[name]]
        result[name] = statistics.median(runs)
        result[f"runs of {name}"] = " ".join(f"{rate:.1f}" for rate in runs)
    return result


if __name__ == "__main__":
    sys.exit(main())
