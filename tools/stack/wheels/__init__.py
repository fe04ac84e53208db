# SPDX-License-Identifier: Apache-2.0
"""Build, describe, inspect, compare and index wheels of the stack."""
