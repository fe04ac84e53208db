# SPDX-License-Identifier: Apache-2.0
"""The kinds of models that are known, by `model_type`."""

from collections.abc import Callable

from stack.deploy.shapes import glm, nemotron, qwen
from stack.deploy.shapes.model import Model
from stack.deploy.shapes.source import Source

BUILDERS: dict[str, Callable[[Source], Model]] = {
    "llama": qwen.llama,
    "qwen2": qwen.llama,
    "qwen3": qwen.llama,
    "qwen3_moe": qwen.qwen_moe,
    "qwen3_next": qwen.qwen_next,
    "qwen3_5_text": qwen.qwen_35,
    "qwen3_5_moe_text": qwen.qwen_35,
    "glm4_moe_lite": glm.glm,
    "nemotron_h": nemotron.nemotron,
}
"""Builders by `model_type`."""
WRAPPERS = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
"""Kinds with images, and the kind of the text model inside of them (`text_config`)."""
