"""A renderer for whatever has a chat template: fine-tunes, checkpoints, families that no other is made for."""

from clotho.errors import InvalidInput
from clotho.models.messages import Messages, TokenIds, Tools
from clotho.models.rendering.chat_template import ChatTemplate
from clotho.models.rendering.messages import TAGS, has_reasoning
from clotho.models.rendering.renderer import Renderer
from clotho.models.rendering.tokenizers import Tokenizer
from clotho.models.tool_call_parsers import ToolCallParser


class TemplateRenderer(Renderer):
    """Renders by the tokenizer's chat template, reads tool calls by a parser, and bridges by suffix.

    `without_parser`: what to say of tools that are offered without a parser. Raises InvalidInput for a tokenizer
    without a chat template.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        parser: ToolCallParser | None,
        *,
        thinking_mode: bool,
        description: str,
        without_parser: str = "",
    ) -> None:
        self._template = ChatTemplate(tokenizer, keep_reasoning=thinking_mode)
        stops = tuple(dict.fromkeys([*tokenizer.end_ids, *self._template.turn_ends().values()]))
        super().__init__(tokenizer, parser, stops, thinking_mode=thinking_mode, description=description)
        self._without_parser = without_parser
        self._ends = [tokenizer.decode([end]) for end in stops]

    def render(
        self, messages: Messages, tools: Tools = (), *, add_generation_prompt: bool = True
    ) -> tuple[int, ...]:
        if tools and self._parser is None:
            raise InvalidInput(self._without_parser)
        return self._tokenizer.encode(
            self._template(messages, tools, add_generation_prompt=add_generation_prompt)
        )

    def bridge(
        self, prompt_ids: TokenIds, completion_ids: TokenIds, new_messages: Messages, tools: Tools = ()
    ) -> tuple[int, ...] | None:
        if not new_messages or any(message.role == "assistant" for message in new_messages):
            return None
        if self._split(self.decode(completion_ids), prompt_ids, tools)[1] is None:
            return None  # cut off within its think block
        previous = (*prompt_ids, *completion_ids)
        try:
            reasoned = self._reasoned(previous)
            continuation = self._template.continuation(new_messages, tools, self._ends, reasoned=reasoned)
        except InvalidInput:
            # A template may refuse the stand-in and accept the conversation.
            return None
        if continuation is None:
            return None
        # a turn that was cut off lacks its closing token: it is added, masked, as nobody sampled it; one that ended
        # with another token than the template's can't be extended
        closing, *rest = self._tokenizer.encode(continuation)
        last = completion_ids[-1] if completion_ids else None
        if last == closing:
            return (*previous, *rest)
        return None if last in self.stop_token_ids else (*previous, closing, *rest)

    def _reasoned(self, ids: TokenIds) -> bool:
        added = self._tokenizer.added
        # where think tags are tokens, ids are looked through before a whole conversation is decoded
        possible = any(tag not in added or added[tag] in ids for tag, _ in TAGS)
        return possible and has_reasoning(self._tokenizer.decode(ids))
