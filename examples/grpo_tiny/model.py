"""A Qwen2 model as a function of its weights: the logprobs of given tokens, and their gradients."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from clotho.embedded.model.checkpoint import Architecture
from examples.grpo_tiny.layers import (
    Array,
    Gradients,
    Pullback,
    attention,
    gated,
    linear,
    rms_norm,
    rotate,
    token_logprobs,
)

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

Weights = Mapping[str, Array]
Tokens = npt.NDArray[np.int64]


def sequence_logprobs(
    shape: Architecture, weights: Weights, tokens: Tokens
) -> tuple[Array, Callable[[Array], Gradients]]:
    """The logprob of every token but the first of each row, (batch, length - 1), given those before it.

    The second value turns a loss's gradient by these into its gradients by the weights. Rows may be padded at
    their ends with anything: no token is given those after it.
    """
    gradients = Gradients()
    given = tokens[:, :-1]
    hidden = weights[EMBEDDING][given]
    pullbacks: list[Pullback] = []
    for index in range(shape.num_hidden_layers):
        layer = _Layer(shape, weights, gradients, f"model.layers.{index}.")
        for block in (layer.attend, layer.feed_forward):
            change, block_pullback = block(hidden)
            hidden = hidden + change
            pullbacks.append(block_pullback)
    normed, norm_pullback = rms_norm(
        hidden, weights["model.norm.weight"], shape.rms_norm_eps, _adds(gradients, "model.norm.weight")
    )
    head = HEAD if HEAD in weights else EMBEDDING
    logits, head_pullback = linear(normed, weights[head], _adds(gradients, head))
    logprobs, logprobs_pullback = token_logprobs(logits, tokens[:, 1:])

    def pullback(above: Array) -> Gradients:
        by_hidden = norm_pullback(head_pullback(logprobs_pullback(above)))
        for through in reversed(pullbacks):
            by_hidden = by_hidden + through(by_hidden)
        by_embedding = np.zeros_like(weights[EMBEDDING])
        np.add.at(by_embedding, given, by_hidden)
        gradients.add(EMBEDDING, by_embedding)
        return gradients

    return logprobs, pullback


class _Layer:
    def __init__(self, shape: Architecture, weights: Weights, gradients: Gradients, prefix: str) -> None:
        self._shape = shape
        self._weights = weights
        self._gradients = gradients
        self._prefix = prefix

    def attend(self, hidden: Array) -> tuple[Array, Pullback]:
        shape = self._shape
        group = shape.num_attention_heads // shape.num_key_value_heads
        cosines, sines = _rotations(shape, hidden.shape[1], hidden.dtype)
        normed, norm_pullback = self._norm("input_layernorm", hidden)
        projected, projections = zip(
            *(self._linear(f"self_attn.{name}_proj", normed, bias=True) for name in "qkv"), strict=True
        )
        queries, keys, values = (_heads(each, shape.head_size) for each in projected)
        queries, turn_queries = rotate(queries, cosines, sines)
        keys, turn_keys = rotate(keys, cosines, sines)
        mixed, mix_pullback = attention(queries, keys.repeat(group, axis=1), values.repeat(group, axis=1))
        output, output_pullback = self._linear("self_attn.o_proj", _joined(mixed))

        def pullback(above: Array) -> Array:
            by_queries, by_keys, by_values = mix_pullback(_heads(output_pullback(above), shape.head_size))
            by_heads = (
                turn_queries(by_queries),
                turn_keys(_summed(by_keys, group)),
                _summed(by_values, group),
            )
            by_normed = [back(_joined(each)) for back, each in zip(projections, by_heads, strict=True)]
            return norm_pullback(by_normed[0] + by_normed[1] + by_normed[2])

        return output, pullback

    def feed_forward(self, hidden: Array) -> tuple[Array, Pullback]:
        normed, norm_pullback = self._norm("post_attention_layernorm", hidden)
        gate, gate_pullback = self._linear("mlp.gate_proj", normed)
        up, up_pullback = self._linear("mlp.up_proj", normed)
        product, product_pullback = gated(gate, up)
        output, output_pullback = self._linear("mlp.down_proj", product)

        def pullback(above: Array) -> Array:
            by_gate, by_up = product_pullback(output_pullback(above))
            return norm_pullback(gate_pullback(by_gate) + up_pullback(by_up))

        return output, pullback

    def _linear(self, name: str, rows: Array, *, bias: bool = False) -> tuple[Array, Pullback]:
        weight, offset = f"{self._prefix}{name}.weight", f"{self._prefix}{name}.bias"
        on_bias = _adds(self._gradients, offset) if bias else None
        output, pullback = linear(rows, self._weights[weight], _adds(self._gradients, weight), on_bias)
        return (output + self._weights[offset] if bias else output), pullback

    def _norm(self, name: str, rows: Array) -> tuple[Array, Pullback]:
        gain = f"{self._prefix}{name}.weight"
        return rms_norm(rows, self._weights[gain], self._shape.rms_norm_eps, _adds(self._gradients, gain))


def _adds(gradients: Gradients, name: str) -> Callable[[Array], None]:
    return lambda gradient: gradients.add(name, gradient)


def _heads(rows: Array, size: int) -> Array:
    """(batch, length, heads * size) to (batch, heads, length, size)."""
    return rows.reshape(*rows.shape[:2], -1, size).swapaxes(1, 2)


def _joined(heads: Array) -> Array:
    return heads.swapaxes(1, 2).reshape(heads.shape[0], heads.shape[2], -1)


def _summed(heads: Array, group: int) -> Array:
    """Over the query heads that share a key and value head."""
    batch, count, length, size = heads.shape
    summed: Array = heads.reshape(batch, count // group, group, length, size).sum(axis=2)
    return summed


def _rotations(shape: Architecture, length: int, dtype: np.dtype[np.floating]) -> tuple[Array, Array]:
    size = shape.head_size
    frequencies = shape.rope_parameters.rope_theta ** (-np.arange(0, size, 2) / size)
    angles = np.outer(np.arange(length), frequencies)
    angles = np.concatenate([angles, angles], axis=-1)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
