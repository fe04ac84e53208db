# SPDX-License-Identifier: Apache-2.0
"""The tiles of FlashInfer's grouped MXFP8 x MXFP4 kernels for SM120 that the laboratory runs on SM90."""

from dataclasses import dataclass


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


TILES = tuple(Tile(columns, swapped) for swapped in (True, False) for columns in (32, 64, 128))
"""All tiles that FlashInfer instantiates at our pin; each takes the compiler two minutes."""
