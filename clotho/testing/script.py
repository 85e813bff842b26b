"""Scripts for a model: turns by conversation, and the faults on the way."""

import json
import math
import re
from collections.abc import Callable, Iterable
from statistics import NormalDist
from typing import Literal

from pydantic import Field, JsonValue

from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import derived_seed
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall

SIBLING = re.compile(r"/r(\d+)[^/]*/")


class ScriptedCall(FrozenModel):
    """A tool call that the model makes."""

    name: str
    arguments: dict[str, JsonValue] | str
    """Text is sent as it is, so that it can be invalid JSON."""

    def called(self, id: str) -> ToolCall:
        text = self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)
        return ToolCall(id=id, function=FunctionCall(name=self.name, arguments=text))


class ScriptedTurn(FrozenModel):
    """One turn of the model: text, tool calls, or both."""

    content: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    reasoning: str | None = None
    finish_reason: str | None = None
    """The answer's finish reason; by default `tool_calls` with calls and `stop` without."""

    def message(self, call_ids: Iterable[str]) -> ChatMessage:
        """The assistant's message, its calls with `call_ids`."""
        # not strict: the ids go on without end
        calls = tuple(call.called(id) for call, id in zip(self.calls, call_ids, strict=False))
        return ChatMessage(
            role="assistant", content=self.content, reasoning_content=self.reasoning, tool_calls=calls
        )


class Question(FrozenModel):
    """The input of a policy."""

    key: str
    """The Idempotency-Key; empty if there was none."""
    model: str
    messages: tuple[ChatMessage, ...]
    seed: int | None = None

    @property
    def turn(self) -> int:
        """Number of the model's turns before this one."""
        return sum(message.role == "assistant" for message in self.messages)

    @property
    def prompt(self) -> str:
        """The text of the first user message."""
        return next((_text(message) for message in self.messages if message.role == "user"), "")

    @property
    def sibling(self) -> int:
        """The rollout's number within its group, as the key names it; 0 where it names none."""
        found = SIBLING.search(self.key)
        return int(found[1]) if found else 0


Policy = Callable[[Question], ScriptedTurn]
"""Decides the next turn of a conversation. Called outside the caller's event loop: it must not touch it."""


class Conversation(FrozenModel):
    """The turns of the conversations whose prompt contains `match`."""

    match: str = ""
    variants: tuple[tuple[ScriptedTurn, ...], ...] = Field(min_length=1)
    """Sibling n of a group plays variant n, modulo their number. The last turn repeats."""

    def answer(self, question: Question) -> ScriptedTurn:
        turns = self.variants[question.sibling % len(self.variants)]
        return turns[min(question.turn, len(turns) - 1)]


class Fault(FrozenModel):
    """Something that goes wrong, and when: in the requests numbered, in every n-th, or at first attempts."""

    kind: Literal["status", "drop", "garbage", "empty_choices", "hang"]
    requests: tuple[int, ...] = ()
    """Numbers of requests since the start, counted from 1."""
    every: int | None = Field(default=None, gt=0)
    first_attempts: int = 0
    """The first so many requests of each key."""
    status: int = 503
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of the answer, such as {"retry-after": "2"}."""
    message: str = "scripted fault"

    def applies(self, request: int, attempt: int) -> bool:
        """Whether it strikes request number `request`, the `attempt`-th of its key."""
        periodic = self.every is not None and request % self.every == 0
        return periodic or request in self.requests or attempt <= self.first_attempts


class Script(FrozenModel):
    """A scripted model as JSON. The first conversation that matches a prompt answers it."""

    conversations: tuple[Conversation, ...] = Field(min_length=1)
    latency: float = 0.0
    """Seconds before each answer."""
    latency_spread: float = 0.0
    """Further seconds at most, derived from the key and so the same every time."""
    latency_sigma: float = 0.0
    """Where set, seconds are log-normal with the median `latency`, derived from the key likewise."""
    tokens_per_second: float = 0.0
    """Where set, the usage of an answer has so many sampled tokens for each second that it took."""
    most_at_once: int = 1 << 20
    """Answers that it makes at the same time; further requests wait for their turn."""
    best_at_once: int = Field(default=1 << 20, gt=0)
    """Answers that it makes at full speed; of twice as many, each takes four times as long, and so on."""
    faults: tuple[Fault, ...] = ()

    def answer(self, question: Question) -> ScriptedTurn:
        prompt = question.prompt
        for conversation in self.conversations:
            if conversation.match in prompt:
                return conversation.answer(question)
        return ScriptedTurn(content="The script has no conversation for this prompt.")

    def seconds(self, key: str) -> float:
        share = derived_seed(key) % 1000 / 1000
        if self.latency_sigma:
            # inv_cdf has no value at 0
            return self.latency * math.exp(self.latency_sigma * NormalDist().inv_cdf(max(share, 0.001)))
        return self.latency + self.latency_spread * share

    def speed(self, at_once: int) -> float:
        """The speed of each of so many answers."""
        return min(1.0, self.best_at_once / at_once) ** 2


def terminal_turns(turns: int, command: str = "true", final: str = "Done.") -> Conversation:
    """A conversation of `turns` terminal calls, and a last turn without one."""
    call = ScriptedCall(name="terminal", arguments={"command": command})
    return Conversation(variants=((*[ScriptedTurn(calls=(call,))] * turns, ScriptedTurn(content=final)),))


def _text(message: ChatMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(str(part.get("text", "")) for part in message.content or ())
