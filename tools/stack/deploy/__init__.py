# SPDX-License-Identifier: Apache-2.0
"""How a server is run: recipes, hardware, checkpoints, settings that vLLM removed, its log and its version."""
