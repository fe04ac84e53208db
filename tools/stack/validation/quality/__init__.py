# SPDX-License-Identifier: Apache-2.0
"""What rounding qkv, o and lm_head to fewer bits does to a model: its distribution over the next token, held against BF16's."""
