# SPDX-License-Identifier: Apache-2.0
"""Test patches: run proofs on the real upstream tree, with a patch and without it, and compile what it changes."""
