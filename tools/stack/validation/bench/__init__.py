# SPDX-License-Identifier: Apache-2.0
"""Measure a server's speed with llama-benchy, check the runs, and compare them with earlier measurements."""
