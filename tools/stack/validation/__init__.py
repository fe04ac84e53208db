# SPDX-License-Identifier: Apache-2.0
"""Validation suites of the stack: kernels, server, speed, quality. Each suite yields cases."""
