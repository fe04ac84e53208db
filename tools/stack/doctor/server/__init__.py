# SPDX-License-Identifier: Apache-2.0
"""Questions that `stack doctor --url` asks a running server, and how it judges the answers."""
