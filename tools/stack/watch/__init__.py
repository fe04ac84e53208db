# SPDX-License-Identifier: Apache-2.0
"""Watch upstreams every night: carry the stack to new releases, keep an issue for each upstream, open draft pull requests."""
