"""Choosing a token: a function of the logprobs, the parameters, the seed and the token's absolute position."""

import struct
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from clotho.embedded.model.exact import Array


@dataclass(frozen=True)
class SamplingParameters:
    """Sampling parameters of a generation; the defaults leave the model's distribution as it is."""

    seed: int
    """64 bits, signed."""
    max_tokens: int
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0
    include_stop_text: bool = False
    keep_special_tokens: bool = False
    alternatives: int = 0
    """Number of most likely tokens to report beside the sampled one."""


def log_softmax(logits: Array) -> Array:
    """Row by row, over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normalised: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def choose(
    logprobs: Array, parameters: SamplingParameters, position: int, forbidden: Collection[int] = ()
) -> int:
    """The token at absolute `position`, given its logprobs (vocabulary,): never one that is `forbidden`."""
    if forbidden:
        logprobs = logprobs.copy()
        logprobs[list(forbidden)] = -np.inf
    if parameters.temperature == 0:
        return int(logprobs.argmax())
    # shifted, so that the largest weight is 1 at any temperature and can't overflow
    weights = np.exp((logprobs - logprobs.max()) / parameters.temperature)
    cumulated = _truncate(weights, parameters).cumsum()
    drawn = uniform(parameters.seed, position) * cumulated[-1]
    return int(cumulated.searchsorted(drawn, side="right"))


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that is a hash of `seed` and `position`."""
    digest = blake2b(struct.pack("<qq", seed, position), digest_size=8).digest()
    # 52 bits, so that its product with a sum stays below that sum after rounding.
    return float(int.from_bytes(digest, "little") >> 12) / (1 << 52)


def _truncate(weights: Array, parameters: SamplingParameters) -> Array:
    """`weights`, the largest of which is 1, without those that min_p, top_k and top_p leave out."""
    if parameters.min_p > 0:
        weights = np.where(weights < parameters.min_p, 0.0, weights)
    if 0 < parameters.top_k < len(weights):
        smallest = np.partition(weights, -parameters.top_k)[-parameters.top_k]
        weights = np.where(weights < smallest, 0.0, weights)
    if parameters.top_p < 1:
        order = (-weights).argsort(kind="stable")
        before = weights[order].cumsum() - weights[order]
        left_out = order[before > parameters.top_p * weights.sum()]
        # rounding mustn't leave out the most likely token, too
        left_out = left_out[left_out != order[0]]
        weights = weights.copy()
        weights[left_out] = 0.0
    return weights
