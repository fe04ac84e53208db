# SPDX-License-Identifier: Apache-2.0
"""Measure how rounding qkv, o and lm_head to fewer bits changes a model's next-token distribution, compared with BF16."""
