# SPDX-License-Identifier: Apache-2.0
"""The input of the functions that build models, and how they complete one."""

from dataclasses import dataclass

from stack.deploy.formats import Format
from stack.deploy.shapes import layers
from stack.deploy.shapes.keys import MOST, Keys
from stack.deploy.shapes.layers import Parts
from stack.deploy.shapes.model import Draft, Model
from stack.deploy.shapes.quantization import Quantization

LAYERS = 1000
"""Most layers; each has names that are looked up in the checkpoint's lists."""


@dataclass(frozen=True, slots=True)
class Source:
    """The input of a builder: keys, the checkpoint's formats, the model's own type, and the compute capability of the GPU.

    `tied`: the output head shares the embedding.
    """

    keys: Keys
    quantization: Quantization
    dense: Format
    capability: str
    tied: bool

    def parts(self, *prefixes: str) -> Parts:
        """Begin to collect layers whose names have one of these beginnings."""
        return Parts(self.keys, self.quantization.find, self.dense, prefixes)

    def layers(self) -> int:
        """Return the number of layers."""
        return self.keys.whole("num_hidden_layers", most=LAYERS)

    def built(self, kind: str, parts: Parts, draft: Parts | None = None) -> Model:
        """Complete a model with its output head."""
        keys = self.keys
        layers.head(parts, tied=self.tied)
        longest = keys.optional("max_position_embeddings", least=1) or MOST
        keys.finish()
        made = Draft(tuple(draft.matrices), tuple(draft.caches)) if draft is not None else None
        matrices, caches, states = tuple(parts.matrices), tuple(parts.caches), tuple(parts.states)
        return Model(kind, longest, self.dense, matrices, caches, states, made, self.quantization.kv, tied=self.tied)
