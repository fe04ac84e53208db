# SPDX-License-Identifier: Apache-2.0
"""Series as upstream pull requests: plan them in waves, lint them by upstream's rules, open them, and follow them."""
