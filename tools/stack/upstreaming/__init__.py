# SPDX-License-Identifier: Apache-2.0
"""Series as upstream pull requests: what goes in which wave, by whose rules, and what became of it."""
