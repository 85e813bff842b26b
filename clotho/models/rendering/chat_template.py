"""A model's chat template as a function from messages to text, with its peculiarities found out by trying."""

import json
from collections.abc import Mapping, Sequence

from clotho.errors import InvalidInput
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall, ToolSchema
from clotho.models.rendering.bridging import ASKED, SAID, THOUGHT, common_end
from clotho.models.rendering.messages import templated
from clotho.models.rendering.reasoning import with_reasoning
from clotho.models.rendering.tokenizers import Tokenizer

CALL = ToolCall(id="call00000", function=FunctionCall(name="f", arguments=json.dumps({"a": SAID[0]})))
RESULT = ChatMessage(role="tool", content="0", tool_call_id=CALL.id, name=CALL.function.name)


class ChatTemplate:
    """Writes conversations as `tokenizer`'s template has it.

    With `keep_reasoning`, the think blocks of a template that knows nothing of reasoning become a part of what
    the assistant says. Raises InvalidInput for a tokenizer without a template.
    """

    def __init__(self, tokenizer: Tokenizer, *, keep_reasoning: bool) -> None:
        if not tokenizer.has_template:
            raise InvalidInput(
                f"{tokenizer.name!r} has no chat template: name a renderer that has the model's format, "
                "or add chat_template.jinja to the model's files"
            )
        self._tokenizer = tokenizer
        self._inlines = False
        # Most templates write a call's arguments as JSON themselves; some take the text of the OpenAI API.
        self._parsed = self._accepts_calls(parsed=True) or not self._accepts_calls(parsed=False)
        self._inlines = keep_reasoning and not self._shows_reasoning()

    def __call__(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema], *, add_generation_prompt: bool
    ) -> str:
        """The conversation as text; raises InvalidInput where the template refuses it."""
        shown = [_inlined(message) for message in messages] if self._inlines else messages
        written = templated(shown, self._tokenizer.literals, parsed=self._parsed)
        try:
            return self._tokenizer.template(written, tools, add_generation_prompt=add_generation_prompt)
        except Exception as error:
            # A template is a program of the model's author, and fails as it pleases.
            raise InvalidInput(f"the chat template refuses the messages: {error}") from error

    def turn_ends(self) -> Mapping[str, int]:
        """The token with which the template closes an assistant's turn, if it is one of the added ones."""
        try:
            one, other = (self([ASKED, _turn(text), ASKED], (), add_generation_prompt=True) for text in SAID)
        except InvalidInput:
            return {}
        after = common_end(one, other).lstrip()
        return {token: id for token, id in self._tokenizer.added.items() if after.startswith(token)}

    def _accepts_calls(self, *, parsed: bool) -> bool:
        self._parsed = parsed
        turn = ChatMessage(role="assistant", tool_calls=(CALL,))
        return SAID[0] in self._attempt([ASKED, turn, RESULT])

    def _shows_reasoning(self) -> bool:
        return THOUGHT in self._attempt([ASKED, _turn(SAID[0], reasoning_content=THOUGHT)])

    def _attempt(self, messages: Sequence[ChatMessage]) -> str:
        try:
            return self(messages, (), add_generation_prompt=False)
        except InvalidInput:
            return ""


def _turn(content: str, reasoning_content: str | None = None) -> ChatMessage:
    return ChatMessage(role="assistant", content=content, reasoning_content=reasoning_content)


def _inlined(message: ChatMessage) -> ChatMessage:
    if not message.reasoning_content or not isinstance(message.content, str | None):
        return message
    content = with_reasoning(message.reasoning_content, message.content)
    return message.model_copy(update={"content": content, "reasoning_content": None})
