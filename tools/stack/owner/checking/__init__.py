# SPDX-License-Identifier: Apache-2.0
"""Check a running server: are its answers right, and how fast is it beside published speeds and the memory's limit."""
