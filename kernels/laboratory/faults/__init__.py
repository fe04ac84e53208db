# SPDX-License-Identifier: Apache-2.0
"""Faults planted in the decode kernels, and the judges that must refuse each of them."""
