"""Text that looks like a special token, kept what it is: text.

A file that a tool read may hold `<|im_end|>`. Encoded as that token it would end its message, and what follows it
could pass for another's. A mark within keeps the tokenizer from finding the token, and is dropped before
the text becomes ids. Models read such text in other pieces than it would have been written in, but as it is.
"""

import re
from collections.abc import Collection
from typing import Any

from tokenizers import pre_tokenizers

from clotho.models.rendering.reasoning import TAGS

MARK = "\ufdd0"
"""A noncharacter of Unicode: no text has it."""
THINKING = frozenset(tag for tags in TAGS for tag in tags)
"""What templates look for in what an assistant said."""
TAG = re.compile(r"</?\w+>")


class Literals:
    """Marks a tokenizer's tokens in text: the `special` ones, and ordinary ones that its template has `written`."""

    def __init__(self, special: Collection[str], written: Collection[str]) -> None:
        structural = {*special, *written}
        shown = {token for token in written if TAG.fullmatch(token)}
        self._returned = _any_of(structural)
        self._spoken = _any_of(structural - shown - THINKING)

    def escape_message(self, text: str) -> str:
        """What a user or the model said: a prompt may show how to think, or how to write a call."""
        return _marked(text, self._spoken)

    def escape_tool_result(self, text: str) -> str:
        """What a tool returned: nothing in it is a part of the conversation's structure."""
        return _marked(text, self._returned)


def drop_marks(tokenizer: Any) -> None:
    """Have a fast `tokenizer` drop marks once it has looked for its special tokens."""
    backend = tokenizer.backend_tokenizer
    dropping = pre_tokenizers.Split(MARK, "removed")
    own = backend.pre_tokenizer
    backend.pre_tokenizer = dropping if own is None else pre_tokenizers.Sequence([dropping, own])


def _any_of(tokens: Collection[str]) -> re.Pattern[str] | None:
    markable = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, markable))) if markable else None


def _marked(text: str, tokens: re.Pattern[str] | None) -> str:
    """`text` with a mark in every token; again where breaking one leaves another that overlapped it."""
    while tokens is not None and tokens.search(text):
        text = tokens.sub(lambda token: token[0][0] + MARK + token[0][1:], text)
    return text
