"""A branch's tokens as its page shows them: their text, and how likely the model thought each one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from tokenizers import Tokenizer

from clotho.rollouts.branches import Branch

TOKENS = 4_000
"""Tokens on a page."""
LEAST_LIKELY = 20
LEVELS = (0.9, 0.5, 0.2, 0.05, 0.01)
"""Probabilities below which a token is of the next level."""


@dataclass(frozen=True)
class Token:
    position: int
    id: int
    text: str
    sampled: bool
    """Whether the model sampled it, and it is trained on; what a template or a tool added isn't."""
    logprob: float
    turn: int | None

    @property
    def level(self) -> int:
        """0 for the likeliest, 5 for the least likely."""
        probability = math.exp(min(0.0, self.logprob))
        return sum(probability < bound for bound in LEVELS)


class TokenTexts:
    """The texts of tokens, by the tokenizers that are on this machine: none is fetched."""

    def __init__(self, bundled: Mapping[str, Path]) -> None:
        self._bundled = bundled
        self._open = lru_cache(maxsize=4)(self._opened)

    def texts(self, name: str, ids: Sequence[int]) -> list[str] | None:
        """The text of each token; None where the tokenizer isn't here. Blocks."""
        tokenizer = self._open(name)
        if tokenizer is None:
            return None
        return [tokenizer.decode([id], skip_special_tokens=False) for id in ids]

    def _opened(self, name: str) -> Tokenizer | None:
        file = Path(self._bundled.get(name, name)) / "tokenizer.json"
        if not file.is_file():
            try:
                cached = try_to_load_from_cache(name, "tokenizer.json")
            except HFValidationError:
                return None
            # None, or an object that says the repository is known to have no such file
            if not isinstance(cached, str):
                return None
            file = Path(cached)
        return Tokenizer.from_file(str(file))


def tokens_of(branch: Branch, first: int, texts: Sequence[str] | None) -> list[Token]:
    """Up to TOKENS tokens of a branch from position `first`, whose `texts` are these."""
    turns = {at: span.turn for span in branch.spans for at in range(span.start, span.end)}
    return [
        Token(
            position,
            branch.ids[position],
            texts[position - first] if texts is not None else f"{branch.ids[position]} ",
            branch.mask[position],
            branch.logprobs[position],
            turns.get(position),
        )
        for position in range(first, min(first + TOKENS, len(branch.ids)))
    ]


def least_likely(tokens: Sequence[Token]) -> list[Token]:
    """The sampled tokens with the lowest logprobs, the lowest first."""
    return sorted((each for each in tokens if each.sampled), key=lambda each: each.logprob)[:LEAST_LIKELY]
