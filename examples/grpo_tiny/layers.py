"""The operations of a Qwen2 model, each with its pullback: from a gradient by its output to those by its inputs.

Rows are (batch, length, width), heads are (batch, heads, length, size).
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]
Pullback = Callable[[Array], Array]


class Gradients(dict[str, Array]):
    """Gradients by parameter; those of a parameter that is used twice are summed."""

    def add(self, name: str, gradient: Array) -> None:
        self[name] = self[name] + gradient if name in self else gradient


def linear(
    rows: Array,
    weight: Array,
    on_weight: Callable[[Array], None],
    on_bias: Callable[[Array], None] | None = None,
) -> tuple[Array, Pullback]:
    """x W^T with W (out, in); the parameters' gradients are handed to `on_weight` and `on_bias`."""

    def pullback(above: Array) -> Array:
        flat = above.reshape(-1, above.shape[-1])
        on_weight(flat.T @ rows.reshape(-1, rows.shape[-1]))
        if on_bias is not None:
            on_bias(flat.sum(axis=0))
        return above @ weight

    return rows @ weight.T, pullback


def rms_norm(
    rows: Array, gain: Array, epsilon: float, on_gain: Callable[[Array], None]
) -> tuple[Array, Pullback]:
    """arXiv 1910.07467: x g / rms(x)."""
    inverse = 1.0 / np.sqrt(np.square(rows).mean(axis=-1, keepdims=True) + epsilon)
    normed = rows * inverse

    def pullback(above: Array) -> Array:
        on_gain((above * normed).reshape(-1, rows.shape[-1]).sum(axis=0))
        scaled = above * gain
        by_rows: Array = inverse * (scaled - normed * (scaled * normed).mean(axis=-1, keepdims=True))
        return by_rows

    return normed * gain, pullback


def rotate(heads: Array, cosines: Array, sines: Array) -> tuple[Array, Pullback]:
    """Rotary positions (arXiv 2104.09864, halves layout); the inverse rotation is the pullback."""

    def turned(vectors: Array, sign: float) -> Array:
        left, right = np.split(vectors, 2, axis=-1)
        return vectors * cosines + sign * np.concatenate([-right, left], axis=-1) * sines

    return turned(heads, 1.0), lambda above: turned(above, -1.0)


def attention(
    queries: Array, keys: Array, values: Array
) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    """Causal softmax attention; the pullback gives the gradients by queries, keys and values."""
    length, size = queries.shape[-2:]
    scale = size**-0.5
    scores = queries @ keys.swapaxes(-1, -2) * scale
    scores[..., np.triu(np.ones((length, length), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)

    def pullback(above: Array) -> tuple[Array, Array, Array]:
        by_weights = above @ values.swapaxes(-1, -2)
        by_scores = weights * (by_weights - (by_weights * weights).sum(axis=-1, keepdims=True)) * scale
        return by_scores @ keys, by_scores.swapaxes(-1, -2) @ queries, weights.swapaxes(-1, -2) @ above

    return weights @ values, pullback


def gated(gate: Array, up: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """silu(gate) up."""
    sigmoid = 1.0 / (1.0 + np.exp(-gate))
    silu = gate * sigmoid

    def pullback(above: Array) -> tuple[Array, Array]:
        return above * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)), above * silu

    return silu * up, pullback


def token_logprobs(logits: Array, tokens: npt.NDArray[np.int64]) -> tuple[Array, Pullback]:
    """log softmax(logits)[tokens]; logits are (batch, length, vocabulary), tokens (batch, length)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    chosen = np.take_along_axis(shifted - normaliser, tokens[..., None], axis=-1)

    def pullback(above: Array) -> Array:
        by_logits: Array = -np.exp(shifted - normaliser) * above[..., None]
        by_chosen = np.take_along_axis(by_logits, tokens[..., None], axis=-1) + above[..., None]
        np.put_along_axis(by_logits, tokens[..., None], by_chosen, axis=-1)
        return by_logits

    return chosen[..., 0], pullback
