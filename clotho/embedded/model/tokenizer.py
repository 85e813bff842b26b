"""Text to tokens and back: the model's chat template, its tokenizer, and text that arrives token by token."""

import codecs
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

Templated = dict[str, JsonValue]
"""A message or a tool as chat templates expect it: text content, call arguments parsed."""


class Tokenizer:
    """A byte-level BPE tokenizer with a chat template, as transformers reads them from `directory`."""

    def __init__(self, directory: Path) -> None:
        # AutoTokenizer would pick Qwen2Tokenizer by the model's type, which puts a pre-tokenizer of its own in
        # place of the one the model was trained with.
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
        self._bytes = _bytes_of_tokens(self._tokenizer)
        self.special_ids = frozenset(self._tokenizer.all_special_ids)
        self.longest = max(map(len, self._bytes))
        """Bytes of the longest token."""

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def render(self, messages: Sequence[Templated], tools: Sequence[Templated]) -> str:
        """The text that asks for the assistant's next message. Raises jinja2.TemplateError."""
        text: str = self._tokenizer.apply_chat_template(
            list(messages), tools=list(tools) or None, add_generation_prompt=True, tokenize=False
        )
        return text

    def bytes_of(self, token: int) -> bytes:
        return self._bytes[token]

    def text_of(self, token: int) -> str:
        """The token by itself; bytes that are only a part of a character become U+FFFD."""
        return self._bytes[token].decode(errors="replace")


class TextStream:
    """The text of a growing token sequence, held back while it may be a part of a character or of a stop string."""

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str], *, include_stop: bool, keep_special: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._include_stop = include_stop
        self._hidden = frozenset() if keep_special else tokenizer.special_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, token: int) -> tuple[str, str | None]:
        """The text that is now certain, and the stop string that ends it, if one does."""
        if token not in self._hidden:
            self._held += self._decoder.decode(self._tokenizer.bytes_of(token))
        found = [(at, stop) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            at, stop = min(found)
            text, self._held = self._held[: at + len(stop) * self._include_stop], ""
            return text, stop
        certain = len(self._held) - self._undecided()
        text, self._held = self._held[:certain], self._held[certain:]
        return text, None

    def finish(self) -> str:
        """The text that was held back, now that nothing follows."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return text

    def _undecided(self) -> int:
        """The length of the longest tail that a stop string could continue."""
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stop):
                return length
        return 0


def _bytes_of_tokens(tokenizer: PreTrainedTokenizerFast) -> list[bytes]:
    alphabet = {character: byte for byte, character in bytes_to_unicode().items()}
    added = {token: content.content.encode() for token, content in tokenizer.added_tokens_decoder.items()}
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return [
        added[token] if token in added else bytes(alphabet[character] for character in piece)
        for token, piece in enumerate(pieces)
    ]
