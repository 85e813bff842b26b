"""Rollouts of made-up models: what they sample is what their family's format has them write."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from clotho.models.backend import PriorTurn, SampledTokens, SampledTurn, Usage, VersionSpan
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall, ToolSchema
from clotho.models.rendering.renderer import Renderer
from clotho.models.sampling import Sampling
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.transcript import Step, Transcript
from clotho.rollouts.turn import TurnEntry
from tests.unit.rendering.families import Family

TERMINAL: ToolSchema = {
    "type": "function",
    "function": {
        "name": "terminal",
        "description": "Run a command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}, "path": {"type": "string"}},
        },
    },
}
TOOLS = (TERMINAL,)
WORDS = st.text("abcdefgz019 .é漢🙂", min_size=1, max_size=12).map(str.strip).filter(bool)


@dataclass(frozen=True)
class Planned:
    """A turn that a model shall sample, and what follows it."""

    content: str | None
    reasoning: str | None
    arguments: tuple[dict[str, str], ...]
    """Of each call."""
    answers: tuple[str, ...]
    """The results of the calls, else a user's message."""
    spelled: bool
    """Whether the model writes letter by letter, as no tokenizer would."""


@dataclass(frozen=True)
class Taken:
    """A turn as it was sampled."""

    before: tuple[ChatMessage, ...]
    message: ChatMessage
    tokens: SampledTokens
    bridged: bool


def texts(family: Family) -> st.SearchStrategy[str]:
    """Words, and what looks like the family's own tokens; also nothing at all."""
    return st.lists(WORDS | st.sampled_from(family.tokens.split()), max_size=3).map(" ".join)


def plans(family: Family) -> st.SearchStrategy[list[Planned]]:
    arguments = st.dictionaries(st.sampled_from(["command", "path"]), WORDS, min_size=1)
    quoting = st.just(f"It ends with {family.tokens.split()[0]} then")
    calling = st.builds(
        Planned,
        content=st.none() | WORDS if family.talks_and_calls else st.none(),
        reasoning=st.none() | WORDS if family.reasons else st.none(),
        arguments=st.lists(arguments, min_size=1, max_size=3 if family.parallel else 1).map(tuple),
        answers=st.tuples(texts(family), texts(family), texts(family)),
        spelled=st.booleans(),
    )
    talking = st.builds(
        Planned,
        content=st.none() | WORDS | quoting,
        reasoning=st.none() | WORDS if family.reasons else st.none(),
        arguments=st.just(()),
        answers=st.tuples(texts(family)),
        spelled=st.booleans(),
    )
    return st.lists(calling | talking, min_size=1, max_size=6)


def openings(family: Family) -> st.SearchStrategy[tuple[ChatMessage, ...]]:
    """What a conversation begins with: a question, and a system's message before it or none."""
    system = ChatMessage(role="system", content="You read files.")
    asked = ChatMessage(role="user", content="Read notes.txt")
    return st.sampled_from([(asked,), (system, asked)] if family.system else [(asked,)])


def roll(
    renderer: Renderer, family: Family, opening: tuple[ChatMessage, ...], planned: Sequence[Planned]
) -> list[Taken]:
    """Sample the planned turns one after the other, each prompt made from the turn before."""
    messages, prior, taken = opening, None, []
    for number, plan in enumerate(planned):
        prompt = renderer.next_prompt(messages, TOOLS, prior)
        ids = written(renderer, family, messages, prompt, plan)
        tokens = SampledTokens(
            prompt_ids=prompt,
            ids=ids,
            logprobs=tuple(-(1 + number) / (2 + place) for place in range(len(ids))),
            logprobs_mode="raw",
            versions=(VersionSpan(version=f"v{number}", start=0, end=len(ids)),),
        )
        message = renderer.parse(ids, TOOLS, prompt_ids=prompt, turn_key=f"turn/{number:04}").message
        extended = prior is not None and prompt[: len(_all(prior))] == _all(prior)
        taken.append(Taken(before=messages, message=message, tokens=tokens, bridged=extended))
        prior = PriorTurn(messages=(*messages, message), tokens=tokens)
        messages = (*prior.messages, *answers(plan, message))
    return taken


def written(
    renderer: Renderer, family: Family, messages: Sequence[ChatMessage], prompt: Sequence[int], plan: Planned
) -> tuple[int, ...]:
    """What the family's format makes of the planned turn, as the model would sample it after `prompt`."""
    asked = renderer.render(messages, TOOLS)
    whole = renderer.render((*messages, planned_message(family, plan)), TOOLS, add_generation_prompt=False)
    assert whole[: len(asked)] == asked
    ids = list(whole[len(asked) :])
    ends = renderer.stop_token_ids
    if plan.spelled:
        ids = [piece for id in ids for piece in spelled(renderer, id)]
    if not any(id in ends for id in ids):
        end = family.end_of_calls if plan.arguments else None
        return (*ids, encode(renderer, end or family.tokens.split()[0])[0])
    return tuple(ids[: next(place for place, id in enumerate(ids) if id in ends) + 1])


def planned_message(family: Family, plan: Planned) -> ChatMessage:
    return ChatMessage(
        role="assistant",
        content=plan.content,
        reasoning_content=plan.reasoning,
        tool_calls=tuple(
            ToolCall(
                id=family.id("terminal", index) if family.id else f"{index:09}",
                function=FunctionCall(name="terminal", arguments=_json(arguments)),
            )
            for index, arguments in enumerate(plan.arguments)
        ),
    )


def answers(plan: Planned, message: ChatMessage) -> tuple[ChatMessage, ...]:
    if not message.tool_calls:
        return (ChatMessage(role="user", content=plan.answers[0]),)
    return tuple(
        ChatMessage(role="tool", tool_call_id=call.id, name=call.function.name, content=content)
        for call, content in zip(message.tool_calls, plan.answers, strict=False)
    )


def transcript(taken: Sequence[Taken]) -> Transcript:
    """The rollout as its journal has it."""
    return Transcript(
        prompt=Prompt(item={}, messages=taken[0].before, seed=1),
        steps=tuple(
            Step(turn=TurnEntry(sampled=sampled_turn(each.message, each.tokens)), calls=()) for each in taken
        ),
    )


def sampled_turn(message: ChatMessage, tokens: SampledTokens | None, temperature: float = 1.0) -> SampledTurn:
    return SampledTurn(
        message=message,
        finish_reason="stop",
        usage=Usage(),
        model="m",
        sampling=Sampling(temperature=temperature),
        started=0.0,
        seconds=0.0,
        tokens=tokens,
    )


def structure(renderer: Renderer, ids: Sequence[int]) -> list[int]:
    """The tokens that aren't text."""
    tokens = set(renderer._tokenizer.added.values())
    return [id for id in ids if id in tokens]


def encode(renderer: Renderer, text: str) -> tuple[int, ...]:
    tokenizer = renderer._tokenizer
    ids: tuple[int, ...] = tokenizer.encode(text)
    return ids


def spelled(renderer: Renderer, id: int) -> Sequence[int]:
    """The same text, a letter at a time."""
    text = renderer.decode([id])
    if "�" in text or (id in encode(renderer, text) and len(text) == 1) or text.startswith(("<", "[")):
        return [id]
    return [piece for letter in text for piece in encode(renderer, letter)]


def _all(prior: PriorTurn) -> tuple[int, ...]:
    return (*prior.tokens.prompt_ids, *prior.tokens.ids)


def _json(arguments: dict[str, str]) -> str:
    return json.dumps(arguments, ensure_ascii=False)
