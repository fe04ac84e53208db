# SPDX-License-Identifier: Apache-2.0
"""Which upstream release or which patch it was: the stacks between a good one and a bad one, halved."""
