"""Rows as readable text for wandb's tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clotho.escaping import truncate_middle

THINKING, CALL, RESULT = 300, 200, 500
"""Characters shown of each."""
TITLES = {"system": "[SYSTEM]", "developer": "[SYSTEM]", "user": "[USER]", "assistant": "[ASSISTANT]"}


def shown_rows(
    group: Mapping[str, Any], most: int, decode: Callable[[list[int]], str]
) -> list[tuple[str, float]]:
    """Text and score of the first `most` rows of a ScoredDataGroup: conversations, or the text of their tokens."""
    said = group.get("messages") or [[]] * len(group["tokens"])
    texts = [
        conversation(messages) if messages else decode(tokens)
        for tokens, messages in zip(group["tokens"][:most], said[:most], strict=True)
    ]
    return list(zip(texts, group["scores"], strict=False))


def conversation(messages: Sequence[Mapping[str, Any]]) -> str:
    """Messages in the OpenAI format as text, a blank line between what each says and does."""
    return "\n\n".join(part for message in messages for part in _parts(message))


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content") or ""
    if message["role"] == "tool":
        yield f"[TOOL RESULT]\n{truncate_middle(content, RESULT)}"
        return
    if reasoning := message.get("reasoning_content"):
        yield f"[ASSISTANT thinking]\n{truncate_middle(reasoning, THINKING)}"
    if content:
        yield f"{TITLES[message['role']]}\n{content}"
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield f"[TOOL CALL] {function['name']}({truncate_middle(str(function['arguments']), CALL)})"
