# SPDX-License-Identifier: Apache-2.0
"""`python -m stack.validation.decoding [--quick] [--json FILE]`: see benchmarks/decode_kernels.py, which starts it."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from stack.validation.decoding import figures
from stack.validation.decoding.figures import LAYERS, MOE, QKV_O, Row
from stack.validation.numerics.kernels.environment import capability

_WHAT = (
    "How fast the decode kernels are beside Marlin, triton_kernels, cuBLAS and FlashInfer's for SM90, on one GPU from SM80 on."
)
_OLDEST = 80
_TOKENS = (1, 2, 4, 8, 16)
_ALL_TOKENS = (*range(1, 17), 20, 24, 28, 32, 48, 64)
"""Beyond 16 in slices: vLLM runs dense layers so up to 64."""
_MOST = max(_ALL_TOKENS)


def main() -> int:
    """Measure, print, and write."""
    options = _options()
    if lacking := _lacking():
        print(f"decode_kernels: {lacking}", file=sys.stderr)
        return 2
    from stack.validation.decoding import measuring  # noqa: PLC0415 (it needs torch)

    tokens = tuple(sorted(set(options.tokens))) or (_TOKENS if options.quick else _ALL_TOKENS)
    asked = measuring.Asked(tokens, options.layers, options.replays, options.seed, options.flashinfer_sm90, not options.quick)
    began = time.monotonic()
    copied = measuring.copied(asked.replays)
    about = _about() | {"copy_gb_s": copied / 1e9, "seed": asked.seed, "layers": asked.layers, "replays": asked.replays}
    print(", ".join(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in about.items()))
    rows: list[Row] = []
    parts = {"moe": measuring.mixtures, "dense": measuring.denses, "lm_head": measuring.heads}
    for name in options.only or parts:
        for found in parts[name](asked):
            _shown(found, copied)
            rows += found
            if options.json:  # what was measured is kept where a later kernel breaks off
                options.json.write_text(json.dumps(_as_json(rows, copied, about), indent=1) + "\n")
    goals = list(figures.goals(rows, copied))
    _print(rows, goals, copied)
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(row.failed for row in rows) or any(goal.met is False for goal in goals) else 0


def _lacking() -> str:
    """Why nothing can be measured here, or nothing."""
    here = capability()
    if not here:
        return "needs torch and an NVIDIA GPU from SM80 on, and torch sees none here"
    return "" if int(here.removeprefix("sm")) >= _OLDEST else f"needs a GPU from SM80 on, this is {here}"


def _about() -> dict[str, Any]:
    import torch  # noqa: PLC0415

    from stack.validation.numerics.__main__ import versions  # noqa: PLC0415

    installed = dict(versions())
    chosen = "timed with the experts" if "vllm" in installed else "not timed above two tokens: vllm is not installed"
    return {"gpu": torch.cuda.get_device_name(), "capability": capability(), **installed, "choice of experts": chosen}


def _shown(rows: list[Row], copied: float) -> None:
    """What a kernel came to, as soon as it is known: a run that is broken off has said something."""
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


def _count(said: str) -> int:
    """A number of tokens."""
    if not said.isdecimal() or not 0 < int(said) <= _MOST:
        raise argparse.ArgumentTypeError(f"{said:.20} is no number from 1 to {_MOST}")
    return int(said)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="decode_kernels", description=_WHAT)
    parser.add_argument("--quick", action="store_true", help=f"M = {', '.join(map(str, _TOKENS))} only, no padded layout")
    parser.add_argument(
        "--tokens",
        type=_count,
        nargs="+",
        default=(),
        metavar="M",
        help=f"these numbers of tokens in place of them, each up to {_MOST} (goals of others are not measured)",
    )
    parser.add_argument(
        "--layers",
        type=int,
        default=LAYERS,
        help=f"layers of experts back to back (default: {LAYERS}, or as many as fit; of dense layers it is always {LAYERS})",
    )
    parser.add_argument("--replays", type=int, default=50)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--only", action="append", choices=("moe", "dense", "lm_head"), help="measure this part; several times for more"
    )
    parser.add_argument(
        "--flashinfer-sm90", action="store_true", help="with FlashInfer's experts for SM90, which compile for 40 minutes"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
