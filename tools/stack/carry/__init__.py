# SPDX-License-Identifier: Apache-2.0
"""Moving patches: onto a base, from one base to another, out to a working tree and back."""
