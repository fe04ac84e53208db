# SPDX-License-Identifier: Apache-2.0
"""Carry a fork as named patch series on pinned upstream commits.

Rooms, from the ground up: `model` (typed data), `store` (upstream source trees), `carry` (moving patches),
`proof` (does a patch do what it says), `cli` (one module a verb). Imports point down, never up.
"""

__version__ = "0.2.0"
