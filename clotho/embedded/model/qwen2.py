"""The Qwen2 forward pass in numpy, over any mix of prompts and single tokens.

The logits of a sequence are the same bits whatever else is in the batch, and whether its earlier tokens were
computed now, before, or by another sequence (see `exact`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from clotho.embedded.model.checkpoint import Architecture
from clotho.embedded.model.exact import (
    MANTISSA_BITS,
    PROBABILITY_BITS,
    Array,
    Linear,
    attention,
    round_rows,
    round_to_grid,
)
from clotho.embedded.model.kv_cache import KeyValueCache


@dataclass(frozen=True)
class Extension:
    """Tokens to append to a sequence: a prompt or a part of one, or the token sampled last."""

    cache: KeyValueCache
    tokens: Sequence[int]


class Qwen2:
    """A Qwen2 causal language model with tied or separate head; `tensors` have their Hugging Face names."""

    def __init__(self, architecture: Architecture, tensors: Mapping[str, Array]) -> None:
        self.architecture = architecture
        self._embedding = tensors["model.embed_tokens.weight"]
        self._layers = [
            _Layer(architecture, tensors, index) for index in range(architecture.num_hidden_layers)
        ]
        self._norm = tensors["model.norm.weight"]
        self._head = Linear(tensors.get("lm_head.weight", self._embedding))
        self._cosines, self._sines = _rotations(architecture)

    def extend(self, extensions: Sequence[Extension]) -> Array:
        """Append each extension's tokens to its cache; the logits after its last, (extensions, vocabulary)."""
        spans, positions = _spans(extensions)
        hidden = self._embedding[np.concatenate([each.tokens for each in extensions])]
        rotation = self._cosines[positions][:, None], self._sines[positions][:, None]
        for extension in extensions:
            extension.cache.reserve(len(extension.cache.tokens) + len(extension.tokens))
        for index, layer in enumerate(self._layers):
            hidden = hidden + layer.attend(index, hidden, rotation, extensions, spans)
            hidden = hidden + layer.feed_forward(hidden)
        # only after all layers: `attend` takes a cache's length for the position of its new tokens
        for extension in extensions:
            extension.cache.tokens.extend(extension.tokens)
        last = hidden[[span.stop - 1 for span in spans]]
        return self._head(_rms_norm(last, self._norm, self.architecture.rms_norm_eps))


class _Layer:
    def __init__(self, architecture: Architecture, tensors: Mapping[str, Array], index: int) -> None:
        def named(name: str) -> Array:
            return tensors[f"model.layers.{index}.{name}"]

        self._shape = architecture
        self._input_norm = named("input_layernorm.weight")
        self._output_norm = named("post_attention_layernorm.weight")
        projections = ("q_proj", "k_proj", "v_proj")
        self._qkv = Linear(
            np.concatenate([named(f"self_attn.{each}.weight") for each in projections]),
            np.concatenate([named(f"self_attn.{each}.bias") for each in projections]),
        )
        self._output = Linear(named("self_attn.o_proj.weight"))
        self._gate_up = Linear(np.concatenate([named("mlp.gate_proj.weight"), named("mlp.up_proj.weight")]))
        self._down = Linear(named("mlp.down_proj.weight"))
        # a query and a key have as many bits each, and a head's products are added up
        self._key_bits = (MANTISSA_BITS - ceil(log2(architecture.head_size))) // 2
        largest = _largest_value(
            named("self_attn.v_proj.weight") * self._input_norm, named("self_attn.v_proj.bias")
        )
        # One bit to spare: rounded probabilities may add up to a little more than one.
        self._value_bits = MANTISSA_BITS - 1 - PROBABILITY_BITS - ceil(log2(largest))

    def attend(
        self,
        index: int,
        hidden: Array,
        rotation: tuple[Array, Array],
        extensions: Sequence[Extension],
        spans: Sequence[slice],
    ) -> Array:
        shape = self._shape
        size, kv_heads = shape.head_size, shape.num_key_value_heads
        group = shape.num_attention_heads // kv_heads
        qkv = self._qkv(_rms_norm(hidden, self._input_norm, shape.rms_norm_eps)).reshape(
            len(hidden), -1, size
        )
        rotated = _rotate(qkv[:, :-kv_heads], *rotation)
        rotated[:, : shape.num_attention_heads] *= size**-0.5
        rotated = round_rows(rotated, self._key_bits)
        values = round_to_grid(qkv[:, -kv_heads:], self._value_bits)
        mixed = np.empty((len(hidden), kv_heads, group, size))
        for extension, span in zip(extensions, spans, strict=True):
            start = len(extension.cache.tokens)
            stop = start + len(extension.tokens)
            keys, cached = extension.cache.keys[index], extension.cache.values[index]
            keys[:, start:stop] = rotated[span, shape.num_attention_heads :].swapaxes(0, 1)
            cached[:, start:stop] = values[span].swapaxes(0, 1)
            queries = rotated[span, : shape.num_attention_heads].reshape(-1, kv_heads, group, size)
            mixed[span] = attention(
                queries.transpose(1, 2, 0, 3), keys[:, :stop], cached[:, :stop], start
            ).transpose(2, 0, 1, 3)
        return self._output(mixed.reshape(len(hidden), -1))

    def feed_forward(self, hidden: Array) -> Array:
        gate_up = self._gate_up(_rms_norm(hidden, self._output_norm, self._shape.rms_norm_eps))
        gate, up = np.split(gate_up, 2, axis=-1)
        return self._down(gate / (1.0 + np.exp(-gate)) * up)


def _spans(extensions: Sequence[Extension]) -> tuple[list[slice], list[int]]:
    """The rows of each extension in the batch, and the absolute position of every row."""
    spans: list[slice] = []
    positions: list[int] = []
    for extension in extensions:
        first, length = len(extension.cache.tokens), len(extension.tokens)
        spans.append(slice(len(positions), len(positions) + length))
        positions.extend(range(first, first + length))
    return spans, positions


def _rms_norm(rows: Array, gain: Array, epsilon: float) -> Array:
    # numpy sums every row by itself, in an order that the row's length alone decides.
    normed: Array = rows / np.sqrt(np.square(rows).mean(axis=-1, keepdims=True) + epsilon) * gain
    return normed


def _rotations(architecture: Architecture) -> tuple[Array, Array]:
    """Cosines and sines of rotary embedding, each (positions, head size): arXiv 2104.09864, halves layout."""
    size = architecture.head_size
    frequencies = architecture.rope_parameters.rope_theta ** (-np.arange(0, size, 2) / size)
    angles = np.outer(np.arange(architecture.max_position_embeddings), frequencies)
    angles = np.concatenate([angles, angles], axis=-1)
    return np.cos(angles), np.sin(angles)


def _rotate(heads: Array, cosines: Array, sines: Array) -> Array:
    left, right = np.split(heads, 2, axis=-1)
    rotated: Array = heads * cosines + np.concatenate([-right, left], axis=-1) * sines
    return rotated


def _largest_value(weight: Array, bias: Array) -> float:
    """A bound on |W x + b|, at least 1, for x of root mean square 1, by Cauchy-Schwarz."""
    bounds = np.linalg.norm(weight, axis=1) * weight.shape[1] ** 0.5 + np.abs(bias)
    return max(1.0, float(bounds.max()))
