# SPDX-License-Identifier: Apache-2.0
"""Reports on a stack and on what became of its patches: HTML, Markdown and JSON."""
