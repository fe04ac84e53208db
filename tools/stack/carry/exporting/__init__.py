# SPDX-License-Identifier: Apache-2.0
"""Export an upstream's patches for other tools: quilt, `git am`, or a branch with one commit per patch."""
