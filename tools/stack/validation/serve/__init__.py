# SPDX-License-Identifier: Apache-2.0
"""A real server with the stack's patches in it, asked what clients ask."""
