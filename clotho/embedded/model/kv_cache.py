"""Keys and values of one sequence, and the store of them that lets prompts share what they have in common."""

from collections.abc import Sequence

import numpy as np

from clotho.embedded.model.checkpoint import Architecture
from clotho.embedded.model.exact import Array

CAPACITY_STEP = 128
SHORTEST_SHARED_PREFIX = 8


class KeyValueCache:
    """Keys and values of `tokens`, each (layers, kv heads, capacity, head size), growing as tokens are appended."""

    def __init__(self, architecture: Architecture) -> None:
        self.tokens: list[int] = []
        layers, heads = architecture.num_hidden_layers, architecture.num_key_value_heads
        self._limit = architecture.max_position_embeddings
        self.keys: Array = np.empty((layers, heads, 0, architecture.head_size))
        self.values: Array = np.empty_like(self.keys)

    def reserve(self, length: int) -> None:
        if length > self.keys.shape[2]:
            # with room to spare: arrays that grew at every token would be copied at every token
            capacity = min(self._limit, length + CAPACITY_STEP)
            self.keys = _widen(self.keys, capacity)
            self.values = _widen(self.values, capacity)

    def adopt(self, other: "KeyValueCache", length: int) -> None:
        """Start as a copy of the first `length` tokens of `other`."""
        self.reserve(length)
        self.keys[:, :, :length] = other.keys[:, :, :length]
        self.values[:, :, :length] = other.values[:, :, :length]
        self.tokens = other.tokens[:length]


def _widen(array: Array, capacity: int) -> Array:
    wider = np.empty((*array.shape[:2], capacity, array.shape[3]))
    wider[:, :, : array.shape[2]] = array
    return wider


class PrefixStore:
    """The caches that were added or shared last, `token_budget` tokens of them.

    Reuse changes no bit: keys and values depend on the tokens before them alone.
    """

    def __init__(self, token_budget: int) -> None:
        self._token_budget = token_budget
        self._caches: list[KeyValueCache] = []

    def add(self, cache: KeyValueCache) -> None:
        self._caches.append(cache)
        kept = sum(len(each.tokens) for each in self._caches)
        # the newest stays, however long: it was added for a prompt that its siblings have in common
        while kept > self._token_budget and len(self._caches) > 1:
            kept -= len(self._caches.pop(0).tokens)

    def fill(self, cache: KeyValueCache, prompt: Sequence[int]) -> None:
        """Give an empty `cache` the longest known prefix of `prompt` that leaves a token to compute."""
        longest, source = SHORTEST_SHARED_PREFIX - 1, None
        for each in reversed(self._caches):
            shared = _shared_length(each.tokens, prompt)
            if shared > longest:
                longest, source = shared, each
        if source is not None:
            self._caches.remove(source)
            self._caches.append(source)
            # one token is always computed: the logits after it begin the answer
            cache.adopt(source, min(longest, len(prompt) - 1))


def _shared_length(left: Sequence[int], right: Sequence[int]) -> int:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
