"""Text to tokens and back: the model's chat template, its tokenizer, and text that arrives token by token."""

import codecs
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import tokenizers
from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import JsonValue

Templated = dict[str, JsonValue]
"""A message or a tool as chat templates expect it: text content, call arguments parsed."""


class Tokenizer:
    """A byte-level BPE tokenizer with a chat template, as transformers saves them in `directory`.

    It is read without transformers, which would be most of an installation and of this server's start.
    """

    def __init__(self, directory: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._template, self._named_tokens = _chat_template(directory)
        added = self._tokenizer.get_added_tokens_decoder()
        self._bytes = _bytes_of_tokens(self._tokenizer)
        self.special_ids = frozenset(id for id, token in added.items() if token.special)
        self.longest = max(map(len, self._bytes))
        """Bytes of the longest token."""

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def render(self, messages: Sequence[Templated], tools: Sequence[Templated]) -> str:
        """The text that asks for the assistant's next message. Raises jinja2.TemplateError."""
        return self._template.render(
            messages=list(messages),
            tools=list(tools) or None,
            add_generation_prompt=True,
            **self._named_tokens,
        )

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


def _bytes_of_tokens(tokenizer: tokenizers.Tokenizer) -> list[bytes]:
    alphabet = _byte_alphabet()
    added = tokenizer.get_added_tokens_decoder()
    return [
        added[id].content.encode() if id in added else bytes(alphabet[character] for character in piece)
        for id, piece in sorted((id, piece) for piece, id in tokenizer.get_vocab().items())
    ]


def _byte_alphabet() -> dict[str, int]:
    """The bytes that byte-level BPE writes as characters: printable ones as themselves, others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + number): byte for number, byte in enumerate(others)
    }


class Generation(Extension):
    """`{% generation %}`, with which templates mark for trainers what the assistant says: here it adds nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _chat_template(directory: Path) -> tuple[Template, dict[str, str]]:
    """The template, set up as transformers does, and the special tokens that it may name, such as eos_token."""
    config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    file = directory / "chat_template.jinja"
    text = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(text, list):
        # older files name several templates
        text = next((each["template"] for each in text if each["name"] == "default"), None)
    # sandboxed: a template is code that comes with the weights
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    # Jinja's own filter escapes for HTML.
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    tokens = {
        name: str(token["content"] if isinstance(token, dict) else token)
        for name, token in config.items()
        if name.endswith("_token") and isinstance(token, str | dict)
    }
    return environment.from_string(text or "{{ raise_exception('there is none') }}"), tokens


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
