# SPDX-License-Identifier: Apache-2.0
"""Variants of the decode kernels, compiled into one program that measures them."""
