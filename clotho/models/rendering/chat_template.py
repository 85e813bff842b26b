"""A model's chat template as a function from messages to text, with its peculiarities found out by trying.

They show in renderings of a short stand-in conversation: a user's message, an assistant's turn of the kind that was
sampled, and the new messages. Two renderings that differ only in what the assistant says have the text after it in
common.
"""

import json
from collections.abc import Collection, Mapping

from clotho.errors import InvalidInput
from clotho.models.messages import ChatMessage, FunctionCall, Messages, ToolCall, Tools
from clotho.models.rendering.messages import for_template, with_reasoning
from clotho.models.rendering.tokenizers import Tokenizer

ASKED = ChatMessage(role="user", content="0")
THOUGHT = "thought-5e1c"
SAID = ("said-0a", "said-1b")
"""Different at both ends, so that neither is a part of what two renderings have in common."""
RESULT = ChatMessage(role="tool", content="0", tool_call_id="call00000", name="f")


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
        self._keep_reasoning = keep_reasoning
        self._inlines = False
        # Most templates write a call's arguments as JSON themselves; some take the text of the OpenAI API.
        self._parsed = self._accepts_calls(parsed=True) or not self._accepts_calls(parsed=False)
        # tried last, with `_parsed` and `_inlines` as they are by then: `__call__` goes by both
        thought = [ASKED, _turn(SAID[0], THOUGHT)]
        self._inlines = keep_reasoning and THOUGHT not in self._attempt(thought)

    def __call__(self, messages: Messages, tools: Tools, *, add_generation_prompt: bool) -> str:
        """The conversation as text; raises InvalidInput where the template refuses it."""
        shown = [_inlined(message) for message in messages] if self._inlines else messages
        written = for_template(shown, self._tokenizer.literals, parsed=self._parsed)
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
        # templates may write white space before the token
        after = _common_end(one, other).lstrip()
        return {token: id for token, id in self._tokenizer.added.items() if after.startswith(token)}

    def continuation(
        self, new_messages: Messages, tools: Tools, ends: Collection[str], *, reasoned: bool
    ) -> str | None:
        """The text from the token in `ends` that closes a turn, through `new_messages`, to the next turn.

        Return None if the template may change the earlier text: what asked for the turn and, where the model
        `reasoned`, its reasoning. With `keep_reasoning`, only what came before the turn counts.
        """
        reasoning = THOUGHT if reasoned and not self._keep_reasoning else None
        results = [message for message in new_messages if message.role == "tool"]
        one, other = (
            self(
                [ASKED, _turn(text, reasoning, results), *new_messages],
                tools,
                add_generation_prompt=True,
            )
            for text in SAID
        )
        before = self([ASKED], tools, add_generation_prompt=not self._keep_reasoning)
        if not (one.startswith(before) and other.startswith(before)):
            return None
        after = _common_end(one, other)
        # the template leaves out what the assistant said, or its reasoning: what was sampled isn't in its history
        if one == other or (reasoning and reasoning not in one.removesuffix(after)):
            return None
        closings = [at for end in ends if (at := after.find(end)) >= 0]
        return after[min(closings) :] if closings else None

    def _accepts_calls(self, *, parsed: bool) -> bool:
        self._parsed = parsed
        return SAID[0] in self._attempt([ASKED, _turn(SAID[0], results=[RESULT]), RESULT])

    def _attempt(self, messages: Messages) -> str:
        try:
            return self(messages, (), add_generation_prompt=False)
        except InvalidInput:
            return ""


def _turn(text: str, reasoning: str | None = None, results: Messages = ()) -> ChatMessage:
    """An assistant's turn that says `text`, or makes the calls with these `results` with it."""
    calls = tuple(
        ToolCall(
            id=message.tool_call_id or "0" * 9,
            function=FunctionCall(name=message.name or "f", arguments=json.dumps({"a": text})),
        )
        for message in results
    )
    content = None if calls else text
    return ChatMessage(role="assistant", content=content, reasoning_content=reasoning, tool_calls=calls)


def _common_end(one: str, other: str) -> str:
    """The longest text that both end in."""
    shared, bound = 0, min(len(one), len(other))
    while shared < bound:
        longer = (shared + bound + 1) // 2
        if one[len(one) - longer :] == other[len(other) - longer :]:
            shared = longer
        else:
            bound = longer - 1
    return one[len(one) - shared :]


def _inlined(message: ChatMessage) -> ChatMessage:
    if not message.reasoning_content or not isinstance(message.content, str | None):
        return message
    content = with_reasoning(message.reasoning_content, message.content)
    return message.model_copy(update={"content": content, "reasoning_content": None})
