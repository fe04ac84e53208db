# SPDX-License-Identifier: Apache-2.0
"""Upstream source trees: a bare repository per upstream, filled from its git remote or its source archive."""
