"""The entries that references in Temporal's payloads point to, for the Temporal UI to show.

Workflows and activities hand each other references, and the store has the texts. The UI asks a codec server to
decode each payload. The server adds what a payload refers to, under SHOWN.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from clotho.errors import ClothoError, InvalidInput
from clotho.escaping import truncate_middle
from clotho.frozen_model import FrozenModel, field_errors
from clotho.identifiers.ids import call_id
from clotho.identifiers.keys import call_key, prompt_key, reward_key, turn_key
from clotho.journal import Journal
from clotho.models.messages import ToolCall
from clotho.rollouts.call import CallEntry, CallRequest
from clotho.rollouts.group import GroupRequest
from clotho.rollouts.rollout import Prompt, RolloutRequest, RolloutSummary
from clotho.rollouts.turn import FirstTurnRequest, TurnEntry, TurnRequest
from clotho.rollouts.verification import RewardEntry, RewardRequest
from clotho.runs.items import read_item

SHOWN = "in the store"
"""The field that is added to a payload that refers to something."""
JSON_ENCODING = b"json/plain"
TEXT_CHARACTERS = 20_000
"""Characters that are shown of one text; the viewer shows it all."""

Fields = dict[str, JsonValue]
Reference = TypeVar("Reference", bound=BaseModel)


class Payload(FrozenModel):
    """A payload of Temporal's, as its remote codecs exchange it."""

    metadata: dict[str, str] = {}
    """Values in base64."""
    data: str = ""
    """In base64."""


class Payloads(FrozenModel):
    """The body of a request to decode, and of its answer."""

    payloads: tuple[Payload, ...] = ()


class Codec:
    """Decodes payloads by reading what they refer to from the store."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._readers: tuple[tuple[type[BaseModel], Callable[[Any], Awaitable[Fields]]], ...] = (
            (TurnRequest, self._turn),
            (FirstTurnRequest, self._turn),
            (CallRequest, self._call),
            (RolloutRequest, self._prompt),
            (RewardRequest, self._reward),
            (RolloutSummary, self._reward),
            (GroupRequest, self._item),
        )

    async def decode(self, body: bytes) -> bytes:
        """The payloads of `body`, with what they refer to. Raises InvalidInput for what is no such body."""
        try:
            asked = Payloads.model_validate_json(body)
        except ValidationError as error:
            raise InvalidInput(field_errors(error, "the body")) from error
        decoded = await asyncio.gather(*map(self._decoded, asked.payloads))
        return Payloads(payloads=tuple(decoded)).model_dump_json().encode()

    async def _decoded(self, payload: Payload) -> Payload:
        try:
            if b64decode(payload.metadata.get("encoding", ""), validate=True) != JSON_ENCODING:
                return payload
            value = json.loads(b64decode(payload.data, validate=True))
        except ValueError:
            return payload
        if not isinstance(value, dict) or (shown := await self._shown(value)) is None:
            return payload
        data = json.dumps({**value, SHOWN: shown}, ensure_ascii=False)
        return payload.model_copy(update={"data": b64encode(data.encode()).decode()})

    async def _shown(self, value: Fields) -> Fields | None:
        """The entry that the value refers to; None where it is no reference."""
        for kind, read in self._readers:
            try:
                # by fields alone, since payloads don't name their type: the models take no others
                reference = kind.model_validate_json(json.dumps(value))
            except ValidationError:
                continue
            try:
                return await read(reference)
            except ClothoError as error:
                # in place of the text: an error status would fail the request's other payloads, too
                return {"error": str(error)}
        return None

    async def _turn(self, asked: TurnRequest) -> Fields:
        entry = await self._journal.read(turn_key(asked.rollout, asked.turn), TurnEntry)
        if entry is None:
            return _missing("turn")
        if entry.sampled is None:
            return {"context overflow": entry.context_overflow}
        message = entry.sampled.message
        keys = [call_key(asked.rollout, call_id(asked.turn, index)) for index in range(len(entry.tool_calls))]
        results = await self._journal.read_many(keys, CallEntry)
        calls = [_call(call, result) for call, result in zip(entry.tool_calls, results, strict=True)]
        said: Fields = {"reasoning": message.reasoning_content, "content": _text(message.content)}
        said |= {"tool calls": list(calls), "finish reason": entry.sampled.finish_reason}
        return {name: text for name, text in said.items() if text}

    async def _call(self, asked: CallRequest) -> Fields:
        turn, result = await asyncio.gather(
            self._journal.read(turn_key(asked.rollout, asked.turn), TurnEntry),
            self._journal.read(call_key(asked.rollout, asked.call), CallEntry),
        )
        if turn is None or asked.index >= len(turn.tool_calls):
            return _missing("call")
        return _call(turn.tool_calls[asked.index], result)

    async def _prompt(self, asked: RolloutRequest) -> Fields:
        prompt = await self._journal.read(prompt_key(asked.rollout), Prompt)
        if prompt is None:
            return _missing("prompt")
        return {"prompt": [{"role": each.role, "content": _text(each.content)} for each in prompt.messages]}

    async def _reward(self, asked: RewardRequest | RolloutSummary) -> Fields:
        reward = await self._journal.read(reward_key(asked.rollout), RewardEntry)
        if reward is None:
            return _missing("reward")
        return {
            "score": reward.score,
            "breakdown": dict(reward.breakdown),
            "log": _text(reward.log),
            "error": reward.error,
        }

    async def _item(self, asked: GroupRequest) -> Fields:
        return {"item": await read_item(self._journal, asked.run, asked.item)}


def _call(call: ToolCall, result: CallEntry | None) -> Fields:
    shown: Fields = {"tool": call.function.name, "arguments": _text(call.function.arguments)}
    if result is None:
        return shown | _missing("result")
    return shown | {"result": _text(result.content), "seconds": round(result.seconds, 3)}


def _missing(what: str) -> Fields:
    return {what: "not in the store yet"}


def _text(content: Any) -> str:
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content)
    return truncate_middle(text, TEXT_CHARACTERS)
