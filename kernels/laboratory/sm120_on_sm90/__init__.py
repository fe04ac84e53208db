# SPDX-License-Identifier: Apache-2.0
"""Run FlashInfer's grouped MXFP8 x MXFP4 kernels for SM120 on SM90, with headers that precede CUTLASS' own on the include path.

SM120's kernels differ from SM90's in three things, which `include/sm120_on_sm90.h` names and replaces. Everything else is the pinned
code: tensor maps and their updates, scale layouts, empty groups, swapped operands, pipelines, epilogues, waits for the predecessor.
It shows nothing about SM120's speed, nor about the three things.
"""
