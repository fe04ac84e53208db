# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's grouped MXFP8 x MXFP4 kernels for SM120 on a GPU of SM90: headers that stand before CUTLASS', and which are compiled.

SM120's kernels are SM90's but for three things, which `include/sm120_on_sm90.h` names and replaces. What runs is the pinned code
otherwise: tensor maps and their updates, scale layouts, empty groups, swapped operands, pipelines, epilogues, waits for the kernel
before. It says nothing of SM120's speed, nor of the three.
"""

from dataclasses import dataclass

LIBRARY = "VALIDATION_SM120_ON_SM90"
"""The variable that names the library, or says why there is none. Where it is not set, nobody has asked for its cases."""


@dataclass(frozen=True, slots=True)
class Tile:
    """An instantiation: 128 rows by so many columns by 128; `swapped`: the weights are the rows, and tokens the columns."""

    columns: int
    swapped: bool

    @property
    def name(self) -> str:
        """As in `128x32-swapped`."""
        return f"128x{self.columns}{'-swapped' if self.swapped else ''}"

    @property
    def instantiation(self) -> str:
        """How FlashInfer's generated source writes it."""
        return f"( 128, {self.columns}, 128, {str(self.swapped).lower()},"


TILES = (*(Tile(columns, True) for columns in (8, 16, 32, 64, 128)), *(Tile(columns, False) for columns in (32, 64, 128)))
"""All that FlashInfer instantiates at our pin: each takes the compiler two minutes."""
