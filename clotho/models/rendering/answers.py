"""Sampled ids as a message: the think block, the tool calls of a dialect, and the rest."""

from clotho.models.messages import ChatMessage, TokenIds, Tools
from clotho.models.rendering.reasoning import opened_by, split_reasoning
from clotho.models.rendering.renderer import ReadAnswer
from clotho.models.rendering.tokenizers import Tokenizer
from clotho.models.tool_call_parsers import ToolCallParser

PROMPT_END = 16
"""More tokens than any template writes between an assistant's header and its think block."""


class AnswerReader:
    """Reads answers by their text; without a parser, a call is text like any other.

    White space around what is said is left out: templates put it there, and would once more.
    """

    def __init__(self, tokenizer: Tokenizer, stop_token_ids: TokenIds, parser: ToolCallParser | None) -> None:
        self._tokenizer = tokenizer
        self._stops = frozenset(stop_token_ids)
        self._parser = parser

    def read(self, completion_ids: TokenIds, tools: Tools, prompt_ids: TokenIds, turn_key: str) -> ReadAnswer:
        ended = bool(completion_ids) and completion_ids[-1] in self._stops
        text = self._tokenizer.decode(completion_ids[:-1] if ended else completion_ids)
        reasoning, rest = self._split(text, prompt_ids, tools)
        if rest is None or self._parser is None or not tools:
            message = ChatMessage(
                role="assistant", content=strip_or_none(rest), reasoning_content=strip_or_none(reasoning)
            )
            return ReadAnswer(message=message)
        answer = self._parser.parse(rest, tools)
        message = ChatMessage(
            role="assistant",
            content=strip_or_none(answer.content),
            reasoning_content=strip_or_none(reasoning),
            tool_calls=answer.tool_calls(turn_key),
        )
        return ReadAnswer(message=message, defects=answer.defects)

    def is_open(self, completion_ids: TokenIds, prompt_ids: TokenIds, tools: Tools) -> bool:
        """Whether the answer was cut off within its think block."""
        return self._split(self._tokenizer.decode(completion_ids), prompt_ids, tools)[1] is None

    def _split(self, text: str, prompt_ids: TokenIds, tools: Tools) -> tuple[str | None, str | None]:
        """The think block and the rest.

        The mark of a call ends the block also without its closing tag, as in vLLM. Where there is a closing tag
        and no call can be read from the mark on, the mark is only named: then it is a thought like any other.
        """
        opened = opened_by(self._tokenizer.decode(prompt_ids[-PROMPT_END:]))
        reasoning, rest = split_reasoning(text, opened)
        mark = self._parser.ends_reasoning if self._parser is not None and tools else None
        if reasoning is None or mark is None or mark not in reasoning:
            return reasoning, rest
        thought, _, _ = reasoning.partition(mark)
        implied = text[text.index(mark) :]
        if rest is not None and self._parser is not None and not self._parser.parse(implied, tools).calls:
            return reasoning, rest
        return thought, implied


def strip_or_none(text: str | None) -> str | None:
    """What an assistant said or thought, without the white space around it."""
    return (text or "").strip() or None
