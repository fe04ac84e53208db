# SPDX-License-Identifier: Apache-2.0
"""Pins, series, patches and the stack digest as typed data, read and written; no git, no network."""
