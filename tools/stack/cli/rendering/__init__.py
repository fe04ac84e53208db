# SPDX-License-Identifier: Apache-2.0
"""What the verbs print: width and colours of the terminal, wrapped text, tables, and lists of patches."""
