"""A model's chat template as a function from messages to text, with its peculiarities found out by trying."""

from collections.abc import Mapping, Sequence
from typing import Literal

from clotho.errors import InvalidInput
from clotho.inference.base import ChatMessage, FunctionCall, ToolCall, ToolSchema
from clotho.rendering.bridging import ASKED, SAID, THOUGHT, common_end
from clotho.rendering.messages import templated
from clotho.rendering.reasoning import with_reasoning
from clotho.rendering.tokenizers import Tokenizer

CALL = ToolCall(id="call00000", function=FunctionCall(name="f", arguments=f'{{"a": "{SAID[0]}"}}'))
RESULT = ChatMessage(role="tool", content="1", tool_call_id=CALL.id, name="f")


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
        self._absent: Literal[""] | None = ""
        if not self._shows(SAID[0], _turn(tool_calls=(CALL,)), RESULT):
            # Templates from before tool calls could have text beside them look for a content of null.
            self._absent = None
        self._inlines = keep_reasoning and not self._shows(
            THOUGHT, _turn(content=SAID[0], reasoning_content=THOUGHT)
        )

    def __call__(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema], *, add_generation_prompt: bool
    ) -> str:
        """The conversation as text; raises InvalidInput where the template refuses it."""
        shown = [_inlined(message) for message in messages] if self._inlines else messages
        written = templated(shown, absent=self._absent)
        try:
            return self._tokenizer.template(written, tools, add_generation_prompt=add_generation_prompt)
        except Exception as error:
            # A template is a program of the model's author, and fails as it pleases.
            raise InvalidInput(f"the chat template refuses the messages: {error}") from error

    def turn_ends(self) -> Mapping[str, int]:
        """The token with which the template closes an assistant's turn, if it is one of the added ones."""
        try:
            one, other = (
                self([ASKED, _turn(content=said), ASKED], (), add_generation_prompt=True) for said in SAID
            )
        except InvalidInput:
            return {}
        after = common_end(one, other).lstrip()
        return {token: id for token, id in self._tokenizer.added.items() if after.startswith(token)}

    def _shows(self, text: str, *turns: ChatMessage) -> bool:
        try:
            return text in self([ASKED, *turns], (), add_generation_prompt=False)
        except InvalidInput:
            return False


def _turn(
    content: str | None = None,
    reasoning_content: str | None = None,
    tool_calls: tuple[ToolCall, ...] = (),
) -> ChatMessage:
    return ChatMessage(
        role="assistant", content=content, reasoning_content=reasoning_content, tool_calls=tool_calls
    )


def _inlined(message: ChatMessage) -> ChatMessage:
    if not message.reasoning_content or not isinstance(message.content, str | None):
        return message
    content = with_reasoning(message.reasoning_content, message.content)
    return message.model_copy(update={"content": content, "reasoning_content": None})
