# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `stack image`, one module each."""
