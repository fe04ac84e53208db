# SPDX-License-Identifier: Apache-2.0
"""Does a patch do what it says: proofs that run against the real upstream tree, with the patch and without it."""
