"""What a chat template writes after an assistant's turn, taken from renderings of a short stand-in conversation.

The stand-in is a user's message, an assistant's turn of the kind that was sampled, and the new messages. Two
renderings that differ only in what the assistant says have the text after it in common.
"""

import json
from collections.abc import Collection, Sequence
from typing import Protocol

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall, ToolSchema

ASKED = ChatMessage(role="user", content="0")
THOUGHT = "thought-5e1c"
SAID = ("said-0a", "said-1b")
"""Different at both ends, so that neither is a part of what two renderings have in common."""


class Template(Protocol):
    def __call__(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
        *,
        add_generation_prompt: bool,
    ) -> str: ...


def following_text(
    template: Template,
    new_messages: Sequence[ChatMessage],
    tools: Sequence[ToolSchema],
    ends: Collection[str],
    *,
    reasoned: bool,
    keep_reasoning: bool,
) -> str | None:
    """The text from the token in `ends` that closes an assistant's turn, through `new_messages`, to the next turn.

    None unless the template provably leaves as it is what comes before: what asked for the turn and, where the
    model `reasoned`, its reasoning. With `keep_reasoning`, only what came before the turn.
    """
    shows_reasoning = reasoned and not keep_reasoning
    one, other = (
        template(
            [ASKED, _turn(text, new_messages, shows_reasoning), *new_messages],
            tools,
            add_generation_prompt=True,
        )
        for text in SAID
    )
    before = template([ASKED], tools, add_generation_prompt=not keep_reasoning)
    if not (one.startswith(before) and other.startswith(before)):
        return None
    after = common_end(one, other)
    if one == other or (shows_reasoning and THOUGHT not in one.removesuffix(after)):
        return None
    closings = [at for end in ends if (at := after.find(end)) >= 0]
    return after[min(closings) :] if closings else None


def common_end(one: str, other: str) -> str:
    """The longest text that both end in."""
    shared, bound = 0, min(len(one), len(other))
    while shared < bound:
        longer = (shared + bound + 1) // 2
        if one[len(one) - longer :] == other[len(other) - longer :]:
            shared = longer
        else:
            bound = longer - 1
    return one[len(one) - shared :]


def _turn(text: str, new_messages: Sequence[ChatMessage], reasoned: bool) -> ChatMessage:
    calls = tuple(
        ToolCall(
            id=message.tool_call_id or "0" * 9,
            function=FunctionCall(name=message.name or "f", arguments=json.dumps({"a": text})),
        )
        for message in new_messages
        if message.role == "tool"
    )
    return ChatMessage(
        role="assistant",
        content=None if calls else text,
        reasoning_content=THOUGHT if reasoned else None,
        tool_calls=calls,
    )
