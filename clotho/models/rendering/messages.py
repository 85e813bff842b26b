"""Messages as chat templates and the `renderers` package expect them: plain text, call arguments parsed.

Think blocks are found and split off here too.

Text that looks like a special token stays text. A file that a tool read may hold `<|im_end|>`: encoded as that
token it would end its message, and what follows it could pass for another's. A mark within keeps the tokenizer from
finding the token, and is dropped before the text becomes ids. Models read such text in other pieces than it would
have been written in, but as it is.
"""

import json
import re
from collections.abc import Collection
from typing import Any

from pydantic import JsonValue
from tokenizers import pre_tokenizers

from clotho.errors import InvalidInput
from clotho.models.messages import ChatMessage, Messages

TemplateMessage = dict[str, JsonValue]
TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<longcat_think>", "</longcat_think>"))
"""Opening and closing tags of think blocks, of which a model has at most one pair."""
FILLED = re.compile(
    "|".join(rf"{re.escape(opening)}(?!\s*{re.escape(closing)})" for opening, closing in TAGS)
)
MARK = "\ufdd0"
"""A noncharacter of Unicode: no text has it."""
THINKING = frozenset(tag for tags in TAGS for tag in tags)
"""Markers that templates look for in an assistant's text."""
TAG = re.compile(r"</?\w+>")


class Literals:
    """Marks a tokenizer's tokens in text: the `special` ones, and ordinary ones that its template has `written`."""

    def __init__(self, special: Collection[str], written: Collection[str]) -> None:
        structural = {*special, *written}
        shown = {token for token in written if TAG.fullmatch(token)}
        self._returned = _any_of(structural)
        self._spoken = _any_of(structural - shown - THINKING)

    def escape_message(self, text: str) -> str:
        """Text of a user or the model: a prompt may show how to think, or how to write a call."""
        return _marked(text, self._spoken)

    def escape_tool_result(self, text: str) -> str:
        """A tool's result: nothing in it is part of the conversation's structure."""
        return _marked(text, self._returned)


def drop_marks(tokenizer: Any) -> None:
    """Have a fast `tokenizer` drop marks once it has looked for its special tokens."""
    backend = tokenizer.backend_tokenizer
    dropping = pre_tokenizers.Split(MARK, "removed")
    own = backend.pre_tokenizer
    backend.pre_tokenizer = dropping if own is None else pre_tokenizers.Sequence([dropping, own])


def _any_of(tokens: Collection[str]) -> re.Pattern[str] | None:
    # longest first: of two tokens that begin alike, the longer one is the one that a tokenizer finds; a mark can't
    # be put into a single character
    markable = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, markable))) if markable else None


def _marked(text: str, tokens: re.Pattern[str] | None) -> str:
    """`text` with a mark in every token; again where breaking one leaves another that overlapped it."""
    while tokens is not None and tokens.search(text):
        text = tokens.sub(lambda token: token[0][0] + MARK + token[0][1:], text)
    return text


def for_template(messages: Messages, literals: Literals, *, parsed: bool = True) -> list[TemplateMessage]:
    """`messages` for a template, the arguments of calls `parsed` or as text, what looks like tokens marked.

    Raises InvalidInput for content that isn't text.
    """
    return [_for_template(message, literals, parsed) for message in messages]


def _for_template(message: ChatMessage, literals: Literals, parsed: bool) -> TemplateMessage:
    shown: TemplateMessage = {"role": message.role, "content": _content(message, literals)}
    if message.reasoning_content:
        shown["reasoning_content"] = literals.escape_message(message.reasoning_content)
    if message.tool_calls:
        shown["tool_calls"] = [
            {
                "id": literals.escape_message(call.id),
                "type": call.type,
                "function": {
                    "name": literals.escape_message(call.function.name),
                    "arguments": _arguments(call.function.arguments, literals, parsed),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        shown["tool_call_id"] = literals.escape_message(message.tool_call_id)
    if message.name is not None:
        shown["name"] = literals.escape_message(message.name)
    return shown


def _content(message: ChatMessage, literals: Literals) -> str:
    """A system message is the author's, and stays as it is."""
    text = _text(message)
    if message.role in ("system", "developer"):
        return text
    return literals.escape_tool_result(text) if message.role == "tool" else literals.escape_message(text)


def _text(message: ChatMessage) -> str:
    if not isinstance(message.content, tuple):
        return message.content or ""
    pieces = [part.get("text") for part in message.content if part.get("type") == "text"]
    if len(pieces) != len(message.content):
        raise InvalidInput(f"a {message.role} message holds parts that aren't text, which tokens can't show")
    return "\n".join(str(piece) for piece in pieces)


def _arguments(written: str, literals: Literals, parsed: bool) -> JsonValue:
    """An object in any case: templates iterate over it, and what a model wrote may not fail its rollout."""
    try:
        value = json.loads(written)
        shown = json.dumps(value, ensure_ascii=False)
        shown.encode()  # half a character, which JSON can escape, is no text for a tokenizer
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        # never an error: what a model once wrote would fail every later turn
        written = shown = json.dumps({"arguments": written}, ensure_ascii=False)
    if not parsed:
        return literals.escape_message(written)
    # marks are put into the text as JSON, so that keys and nested values have theirs, too
    arguments: JsonValue = json.loads(literals.escape_message(shown))
    return arguments


def has_reasoning(text: str) -> bool:
    """Whether there is a think block anywhere that isn't empty."""
    return FILLED.search(text) is not None


def opened_by(prompt_end: str) -> tuple[str, str] | None:
    """The tags of the think block that a prompt ends in."""
    return next((tags for tags in TAGS if prompt_end.rstrip().endswith(tags[0])), None)


def split_reasoning(text: str, opened: tuple[str, str] | None) -> tuple[str | None, str | None]:
    """The think block that `text` begins with, or continues where the prompt `opened` it, and the rest.

    The rest is None while the block isn't closed; without a block, all is rest.
    """
    begun = text.lstrip()
    opening, closing = opened or next((tags for tags in TAGS if begun.startswith(tags[0])), ("", ""))
    if not opening:
        return None, text
    reasoning, closed, rest = begun.removeprefix(opening).partition(closing)
    return reasoning, rest if closed else None


def with_reasoning(reasoning: str, content: str | None) -> str:
    """A turn's text with its think block, for templates that know nothing of reasoning."""
    opening, closing = TAGS[0]
    return f"{opening}\n{reasoning}\n{closing}\n\n{content or ''}"
