# SPDX-License-Identifier: Apache-2.0
"""The verbs of `stack image`, one module each."""
