# SPDX-License-Identifier: Apache-2.0
"""Facts about running a server: recipes, hardware, checkpoints, settings that vLLM removed, its log and its version."""
