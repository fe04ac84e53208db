# SPDX-License-Identifier: Apache-2.0
"""Print results: the width and colours of the terminal, wrapped text, tables, lists of patches, and progress."""
