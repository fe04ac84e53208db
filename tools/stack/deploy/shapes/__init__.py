# SPDX-License-Identifier: Apache-2.0
"""Shapes of models other than gpt-oss: read a `config.json` into matrices, caches and states."""
