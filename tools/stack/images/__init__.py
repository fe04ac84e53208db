# SPDX-License-Identifier: Apache-2.0
"""Images of the stack: built, published, verified and found again."""
