# SPDX-License-Identifier: Apache-2.0
"""Run FlashInfer's grouped MXFP8 x MXFP4 kernels for SM120 on SM90, with headers that precede CUTLASS' own on the include path.

SM120's kernels differ from SM90's in three things, which `include/sm120_on_sm90.h` names and replaces. Everything else is the pinned
code: tensor maps and their updates, scale layouts, empty groups, swapped operands, pipelines, epilogues, waits for the predecessor.
It shows nothing about SM120's speed, nor about the three things.
"""

from dataclasses import dataclass

LIBRARY = "VALIDATION_SM120_ON_SM90"
"""The variable with the library, or with the reason why there is none. If it is unset, the cases are not requested."""


@dataclass(frozen=True, slots=True)
class Tile:
    """An instantiation: 128 rows by `columns` by 128. If `swapped`, the weights are the rows, and the tokens the columns."""

    columns: int
    swapped: bool

    @property
    def name(self) -> str:
        """Name such as `128x32-swapped`."""
        return f"128x{self.columns}{'-swapped' if self.swapped else ''}"

    @property
    def instantiation(self) -> str:
        """Spelling in FlashInfer's generated source."""
        return f"( 128, {self.columns}, 128, {str(self.swapped).lower()},"


TILES = (*(Tile(columns, True) for columns in (8, 16, 32, 64, 128)), *(Tile(columns, False) for columns in (32, 64, 128)))
"""All tiles that FlashInfer instantiates at our pin; each takes the compiler two minutes."""
