# SPDX-License-Identifier: Apache-2.0
"""Command line of the measurement, `python -m laboratory.decoding`."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from laboratory.decoding import figures
from laboratory.decoding.figures import LAYERS, Row
from stack.validation.decode_goals import MOE, QKV_O
from stack.validation.numerics.kernels.environment import capability

_WHAT = "Compare the speed of the decode kernels with Marlin, triton_kernels, cuBLAS and FlashInfer's for SM90, on a GPU from SM80 on."
_OLDEST = 80
_TOKENS = (1, 2, 4, 8, 16)
_ALL_TOKENS = (*range(1, 17), 20, 24, 28, 32, 48, 64)
"""Above 16 in slices, as vLLM runs dense layers up to 64."""
_MOST = max(_ALL_TOKENS)


def main() -> int:
    """Measure, print, and write JSON."""
    options = _options()
    if lacking := _lacking():
        print(f"decode_kernels: {lacking}", file=sys.stderr)
        return 2
    from laboratory.decoding import measuring  # noqa: PLC0415 (it needs torch)

    tokens = tuple(sorted(set(options.tokens))) or (_TOKENS if options.quick else _ALL_TOKENS)
    how = measuring.MeasureOptions(
        tokens, options.layers, options.replays, options.seed, options.flashinfer_sm90, not options.quick
    )
    began = time.monotonic()
    copied = measuring.copied(how.replays)
    about = _about() | {"copy_gb_s": copied / 1e9, "seed": how.seed, "layers": how.layers, "replays": how.replays}
    print(", ".join(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in about.items()))
    rows: list[Row] = []
    parts = {"moe": measuring.mixtures, "dense": measuring.denses, "lm_head": measuring.heads}
    for name in options.only or parts:
        for found in parts[name](how):
            _shown(found, copied)
            rows += found
            if options.json:  # keep the results in case a later kernel aborts the run
                options.json.write_text(json.dumps(_as_json(rows, copied, about), indent=1) + "\n")
    goals = list(figures.goals(rows, copied))
    _print(rows, goals, copied)
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(row.failed for row in rows) or any(goal.met is False for goal in goals) else 0


def _lacking() -> str:
    """Return why nothing can be measured on this machine; empty if it can."""
    here = capability()
    if not here:
        return "needs torch and an NVIDIA GPU from SM80 on, but torch finds none"
    return "" if int(here.removeprefix("sm")) >= _OLDEST else f"needs a GPU from SM80 on, this is {here}"


def _about() -> dict[str, Any]:
    import torch  # noqa: PLC0415

    from stack.validation.numerics.__main__ import versions  # noqa: PLC0415

    installed = dict(versions())
    chosen = "timed with the experts" if "vllm" in installed else "not timed above two tokens: vllm is not installed"
    return {"gpu": torch.cuda.get_device_name(), "capability": capability(), **installed, "choice of experts": chosen}


def _shown(rows: list[Row], copied: float) -> None:
    """Print a kernel's results as soon as they are known, so that an aborted run has printed some."""
    for row in rows:
        found = f"{1e6 * row.seconds:.2f} us a layer, {100 * row.rate / copied:.1f} %" if row.times else row.why
        print(f"  {row.part}, {row.kernel}, M = {row.tokens}: {found}", file=sys.stderr, flush=True)


def _print(rows: list[Row], goals: list[figures.Goal], copied: float) -> None:
    for line in figures.table(sorted(rows, key=lambda row: (row.part, row.tokens)), copied):
        print(line)
    for part in (MOE, QKV_O):
        print(f"{part}: {figures.switched(rows, part)}")
    for goal in goals:
        print(goal)
    if predicted := figures.predicted(rows, copied):
        print(predicted)


def _as_json(rows: list[Row], copied: float, about: dict[str, Any]) -> dict[str, Any]:
    goals = [
        {"name": goal.name, "found": goal.found, "least": goal.least, "met": goal.met} for goal in figures.goals(rows, copied)
    ]
    switches = {part: figures.switch(rows, part) for part in (MOE, QKV_O)}
    return {
        "schema": 1,
        "about": about,
        "rows": [figures.as_json(row) for row in rows],
        "goals": goals,
        "switch": switches,
        "predicted_ms_on_a_spark": figures.prediction(rows, copied),
    }


def _count(text: str) -> int:
    """Parse a number of tokens."""
    if not text.isdecimal() or not 0 < int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text:.20} is not a number from 1 to {_MOST}")
    return int(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="decode_kernels", description=_WHAT)
    parser.add_argument(
        "--quick", action="store_true", help=f"only M = {', '.join(map(str, _TOKENS))}, without the padded layout"
    )
    parser.add_argument(
        "--tokens",
        type=_count,
        nargs="+",
        default=(),
        metavar="M",
        help=f"measure these numbers of tokens instead, each up to {_MOST} (goals for others are not judged)",
    )
    parser.add_argument(
        "--layers",
        type=int,
        default=LAYERS,
        help=f"layers of experts in sequence (default: {LAYERS}, or as many as fit; dense layers are always {LAYERS})",
    )
    parser.add_argument("--replays", type=int, default=50)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--only", action="append", choices=("moe", "dense", "lm_head"), help="measure only this part; may be repeated"
    )
    parser.add_argument(
        "--flashinfer-sm90",
        action="store_true",
        help="also measure FlashInfer's experts for SM90, which compile for 40 minutes",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
