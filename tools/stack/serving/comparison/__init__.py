# SPDX-License-Identifier: Apache-2.0
"""Compare two recipes: serve them in turn on one machine, measure both, and say which is faster."""
