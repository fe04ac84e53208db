# SPDX-License-Identifier: Apache-2.0
"""Validate a real server that runs the stack's patches, with the requests of clients."""
