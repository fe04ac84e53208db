# SPDX-License-Identifier: Apache-2.0
"""Wheels of the stack: built, described, inspected, indexed."""
