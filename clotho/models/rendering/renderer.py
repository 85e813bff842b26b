"""Renderers turn messages into token ids, and sampled ids back into messages, for one model."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from clotho.frozen_model import FrozenModel
from clotho.models.backend import PriorTurn
from clotho.models.messages import CallDefects, ChatMessage, Messages, TokenIds, Tools
from clotho.models.rendering.messages import opened_by, split_reasoning
from clotho.models.tool_call_parsers import ParsedAnswer, ToolCallParser

if TYPE_CHECKING:  # takes more than a second, and workers that render nothing start without it
    from clotho.models.rendering.tokenizers import Tokenizer

PROMPT_END = 16
"""More tokens than any template writes between an assistant's header and its think block."""


class ReadAnswer(FrozenModel):
    """A sampled answer as a message, and the calls in it that aren't run as they were written."""

    message: ChatMessage
    defects: CallDefects = CallDefects()

    @classmethod
    def of(cls, answer: ParsedAnswer, reasoning: str | None, turn_key: str) -> "ReadAnswer":
        """Leave out white space around the texts: templates put it there, and would put it there again."""
        message = ChatMessage(
            role="assistant",
            content=strip_or_none(answer.content),
            reasoning_content=strip_or_none(reasoning),
            tool_calls=answer.tool_calls(turn_key),
        )
        return cls(message=message, defects=answer.defects)


class Renderer(ABC):
    """The chat format of one model. Deterministic, without I/O, and CPU-bound: call it in a thread.

    Answers are read by their text: the think block, the tool calls of a dialect, and the rest. Without a parser,
    a call is text like any other.
    """

    description: str
    """The resolved choices: the tokenizer, the renderer, the tool-call parser and the treatment of reasoning."""
    thinking_mode: bool
    """Whether think blocks stay in the history that later turns see, whatever the template does."""
    stop_token_ids: tuple[int, ...]
    """Any of these ends an assistant's turn; the one that did is the last sampled id."""
    vocabulary_size: int
    """Ids from here on mean nothing to the tokenizer."""

    def __init__(
        self,
        tokenizer: "Tokenizer",
        parser: ToolCallParser | None,
        stop_token_ids: TokenIds,
        *,
        thinking_mode: bool,
        description: str,
    ) -> None:
        self.description = description
        self.thinking_mode = thinking_mode
        self.stop_token_ids = tuple(stop_token_ids)
        self.vocabulary_size = tokenizer.size
        self._tokenizer = tokenizer
        self._parser = parser

    @abstractmethod
    def render(
        self, messages: Messages, tools: Tools = (), *, add_generation_prompt: bool = True
    ) -> tuple[int, ...]:
        """The conversation from its first token; raises InvalidInput where the template refuses it."""

    @abstractmethod
    def bridge(
        self, prompt_ids: TokenIds, completion_ids: TokenIds, new_messages: Messages, tools: Tools = ()
    ) -> tuple[int, ...] | None:
        """The next turn's prompt: the previous prompt and completion as they are, then `new_messages`.

        None where it can't be proved that the template leaves what came before as it is.
        """

    def next_prompt(self, messages: Messages, tools: Tools, prior: PriorTurn | None) -> tuple[int, ...]:
        """The ids to sample the next turn from; begins with `prior`'s tokens wherever the history allows.

        A history that doesn't begin with the messages of `prior`, since a turn was edited or the context
        compacted, is rendered afresh. Raises InvalidInput.
        """
        if prior is not None:
            known = len(prior.messages)
            # compared as messages: an edited history would otherwise be extended by what it no longer says
            if tuple(messages[:known]) == prior.messages:
                bridged = self.bridge(prior.tokens.prompt_ids, prior.tokens.ids, messages[known:], tools)
                if bridged is not None:
                    return bridged
        return self.render(messages, tools)

    def parse(
        self, completion_ids: TokenIds, tools: Tools = (), *, prompt_ids: TokenIds, turn_key: str
    ) -> ReadAnswer:
        """The assistant's message that was sampled after `prompt_ids`; never raises, whatever was sampled.

        Calls without an id of the model's own get one derived from `turn_key`.
        """
        ended = bool(completion_ids) and completion_ids[-1] in self.stop_token_ids
        text = self.decode(completion_ids[:-1] if ended else completion_ids)
        reasoning, rest = self._split(text, prompt_ids, tools)
        if rest is None or self._parser is None or not tools:
            return ReadAnswer.of(ParsedAnswer(content=rest), reasoning, turn_key)
        return ReadAnswer.of(self._parser.parse(rest, tools), reasoning, turn_key)

    def decode(self, ids: TokenIds) -> str:
        """The text of `ids`, special tokens included."""
        return self._tokenizer.decode(ids)

    def _split(self, text: str, prompt_ids: TokenIds, tools: Tools) -> tuple[str | None, str | None]:
        """The think block and the rest, which is None where the answer was cut off within its think block.

        The mark of a call ends the block also without its closing tag, as in vLLM. Where there is a closing tag
        and no call can be read from the mark on, the mark is only named: then it is a thought like any other.
        """
        opened = opened_by(self.decode(prompt_ids[-PROMPT_END:]))
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
    """An assistant's text or thoughts, without the white space around it."""
    return (text or "").strip() or None
