# SPDX-License-Identifier: Apache-2.0
"""Upstream source trees: one bare repository an upstream, filled from the git remote or from the source archive."""
