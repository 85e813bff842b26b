"""Sums that round nowhere, so that no order of summation can change a bit.

A float64 sum is exact while every partial sum is a multiple of one power of two and at most 2**53 of it. Rounding
the factors of each dot product to such a grid first makes its result a function of the row alone: not of the rows
beside it, of cached or fresh computation, of the BLAS kernel or of its threads. The grids are finer than float32.
"""

from math import ceil, log2

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MANTISSA_BITS = 53
WEIGHT_BITS = 24
"""Weights are multiples of 2**-24."""
SUMMAND_BITS = 36
"""Softmax numerators are multiples of 2**-36: exact over 2**17 keys."""
PROBABILITY_BITS = 26


def round_rows(rows: Array, bits: int) -> Array:
    """Each last-axis row rounded to multiples of 2**(e - bits), where 2**e bounds the row's largest magnitude."""
    _, exponent = np.frexp(np.abs(rows).max(axis=-1, keepdims=True))
    # Adding 1.5 * 2**52 quanta leaves no mantissa bits below one quantum; subtracting it again is exact.
    shift = np.ldexp(1.5, exponent + (52 - bits))
    rounded: Array = (rows + shift) - shift
    return rounded


def round_to_grid(values: Array, bits: int) -> Array:
    """`values`, below 2**(51 - bits) in magnitude, rounded to multiples of 2**-bits."""
    shift = np.ldexp(1.5, 52 - bits)
    rounded: Array = (values + shift) - shift
    return rounded


class Linear:
    """x W^T + b with exact sums; W is (out, in), x is (rows, in)."""

    def __init__(self, weight: Array, bias: Array | None = None) -> None:
        rounded = round_to_grid(weight, WEIGHT_BITS)
        # bits that the sum may grow by: rows are rounded so that every partial sum still fits the mantissa
        largest_row_sum = max(1.0, float(np.abs(rounded).sum(axis=1).max()))
        self._bits = MANTISSA_BITS - WEIGHT_BITS - ceil(log2(largest_row_sum))
        self._weight = np.ascontiguousarray(rounded.T)
        self._bias = np.zeros(len(weight)) if bias is None else bias

    def __call__(self, rows: Array) -> Array:
        product: Array = round_rows(rows, self._bits) @ self._weight
        return product + self._bias


def attention(queries: Array, keys: Array, values: Array, first_position: int) -> Array:
    """Causal softmax attention with exact sums.

    `queries` (kv heads, group, new, size) are scaled and on their rows' grids, as `keys` (kv heads, length, size)
    are; `values` (kv heads, length, size) are on one grid. The new rows stand at `first_position` and after it.
    """
    heads, group, new, size = queries.shape
    scores = queries.reshape(heads, group * new, size) @ keys.swapaxes(1, 2)
    if new > 1:
        # exp(-inf) is exactly 0: masked keys change no bit of a sum
        later = np.arange(keys.shape[1])[None, :] > (first_position + np.arange(new))[:, None]
        scores.reshape(heads, group, new, -1)[:, :, later] = -np.inf
    numerators = round_to_grid(np.exp(scores - scores.max(axis=-1, keepdims=True)), SUMMAND_BITS)
    probabilities = numerators / numerators.sum(axis=-1, keepdims=True)
    mixed: Array = round_to_grid(probabilities, PROBABILITY_BITS) @ values
    return mixed.reshape(heads, group, new, size)
