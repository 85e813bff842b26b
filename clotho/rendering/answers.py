"""Sampled ids as a message: the think block, the tool calls of a dialect, and the rest."""

from collections.abc import Sequence

from clotho.inference.base import ChatMessage, ToolSchema
from clotho.inference.tool_call_parsers import ToolCallParser
from clotho.rendering.reasoning import opened_by, split_reasoning
from clotho.rendering.tokenizers import Tokenizer

PROMPT_END = 16
"""More tokens than any template writes between an assistant's header and its think block."""


class AnswerReader:
    """Reads answers by their text; without a parser, a call is text like any other.

    White space around what is said is left out: templates put it there, and would once more.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop_token_ids: Sequence[int], parser: ToolCallParser | None
    ) -> None:
        self._tokenizer = tokenizer
        self._stops = frozenset(stop_token_ids)
        self._parser = parser

    def read(
        self,
        completion_ids: Sequence[int],
        tools: Sequence[ToolSchema],
        prompt_ids: Sequence[int],
        turn_key: str,
    ) -> ChatMessage:
        ended = bool(completion_ids) and completion_ids[-1] in self._stops
        text = self._tokenizer.decode(completion_ids[:-1] if ended else completion_ids)
        reasoning, rest = split_reasoning(text, opened_by(self._tokenizer.decode(prompt_ids[-PROMPT_END:])))
        if rest is None or self._parser is None or not tools:
            return ChatMessage(role="assistant", content=said(rest), reasoning_content=said(reasoning))
        answer = self._parser.parse(rest, tools)
        return ChatMessage(
            role="assistant",
            content=said(answer.content),
            reasoning_content=said(reasoning),
            tool_calls=answer.tool_calls(turn_key),
        )

    def is_open(self, completion_ids: Sequence[int], prompt_ids: Sequence[int]) -> bool:
        """Whether the answer was cut off within its think block."""
        opened = opened_by(self._tokenizer.decode(prompt_ids[-PROMPT_END:]))
        return split_reasoning(self._tokenizer.decode(completion_ids), opened)[1] is None


def said(text: str | None) -> str | None:
    """What an assistant said or thought, without the white space around it."""
    return (text or "").strip() or None
