"""An environment whose author's code runs in processes of its own."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from clotho.environment.channel import unpacked_files
from clotho.environment.environment import AgentResult, EnvironmentConfig, Reward, Solution
from clotho.environment.evaluated import EVALUATED, EvaluatedItem
from clotho.environment.function_tools import function_tool
from clotho.environment.functions import FunctionDescription
from clotho.environment.handles import FunctionCall, FunctionCalls, Opening, WorkClock
from clotho.environment.pool import Pool
from clotho.environment.processes import AuthorProcess, current_caller
from clotho.environment.threads import TimedOut
from clotho.environment.tool_context import ContextCalls
from clotho.errors import EnvironmentFailed
from clotho.rollouts.item import Item
from clotho.sandbox.item import ItemSandbox
from clotho.tools.tool import Tool, ToolOutcome

SHORT_SECONDS = 1_800.0
"""Seconds that the methods beside setup, the dataset, verification and evaluation may take."""


class PooledEnvironment:
    """The environment over a pool; `process` is the only one to call, where it is given."""

    def __init__(
        self,
        pool: Pool,
        facts: Mapping[str, Any],
        fingerprint: str,
        tool_classes: Sequence[Tool] = (),
        process: AuthorProcess | None = None,
    ) -> None:
        self.fingerprint = fingerprint
        # without the author's own fields: their class is in the author's process, and unknown ones are errors
        known = {
            name: facts["config"][name] for name in EnvironmentConfig.model_fields if name in facts["config"]
        }
        self.config = EnvironmentConfig.model_validate(known)
        self.evaluates = bool(facts["evaluates"])
        described = [FunctionDescription.model_validate(each) for each in facts["functions"]]
        self.tools = [*(function_tool(each, self.call_function) for each in described), *tool_classes]
        self._pool = pool
        self._process = process

    async def opening(self, item: Item) -> Opening:
        fields, blobs = await self._short("opening", item=item)
        return Opening(
            prompt=fields["prompt"],
            files=unpacked_files(fields["paths"], blobs),
            sandbox=ItemSandbox.model_validate(fields["sandbox"]),
            seconds=fields["seconds"],
        )

    async def sandbox(self, item: Item) -> ItemSandbox:
        fields, _ = await self._short("sandbox", item=item)
        return ItemSandbox.model_validate(fields["sandbox"])

    async def hidden_files(self, item: Item) -> Mapping[str, bytes]:
        fields, blobs = await self._short("hidden_files", item=item)
        return unpacked_files(fields["paths"], blobs)

    async def grading_sandbox(self, item: Item) -> ItemSandbox | None:
        fields, _ = await self._short("grading_sandbox", item=item)
        return None if fields["sandbox"] is None else ItemSandbox.model_validate(fields["sandbox"])

    async def solution(self, item: Item) -> Solution:
        fields, blobs = await self._short("solution", item=item)
        files: dict[str, str | bytes] = {**unpacked_files(fields["paths"], blobs)}
        return Solution(command=fields["command"], files=files, seconds=fields["seconds"])

    async def same_item(self, recorded: Item, item: Item) -> bool:
        fields, _ = await self._short("same_item", recorded=recorded, item=item)
        return bool(fields["same"])

    async def compute_reward(
        self, item: Item, result: AgentResult, calls: ContextCalls, seconds: float
    ) -> Reward:
        blob = result.model_dump_json().encode()
        fields, blobs = await self._call(
            "compute_reward", {"item": item}, (blob,), calls=calls, clock=WorkClock(seconds)
        )
        artifacts = unpacked_files(fields["artifacts"], blobs)
        shown = {name: fields[name] for name in ("score", "breakdown", "log")}
        return Reward(**shown, artifacts=artifacts)

    async def blames_agent(self, item: Item, calls: ContextCalls, seconds: float) -> bool:
        fields, _ = await self._call("blames_agent", {"item": item}, calls=calls, clock=WorkClock(seconds))
        return bool(fields["blames"])

    async def evaluate(self, items: Sequence[EvaluatedItem]) -> dict[str, float]:
        blob = EVALUATED.dump_json(list(items))
        fields, _ = await self._call("evaluate", {}, (blob,), clock=WorkClock(None))
        metrics: dict[str, float] = fields["metrics"]
        return metrics

    async def next_items(self, number: int) -> tuple[Item, ...]:
        fields, _ = await self._call("next_items", {"number": number}, clock=WorkClock(None))
        return tuple(fields["items"])

    async def call_function(self, call: FunctionCall, calls: FunctionCalls) -> ToolOutcome:
        asked = {"name": call.name, "arguments": call.arguments, "state": call.state, "seconds": call.seconds}
        fields, _ = await self._answer("call_function", asked, (), calls, WorkClock(call.seconds))
        return ToolOutcome.model_validate(fields["outcome"])

    async def _short(self, method: str, **fields: Any) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        return await self._call(method, fields, clock=WorkClock(SHORT_SECONDS))

    async def _call(
        self,
        method: str,
        fields: Mapping[str, Any],
        blobs: Sequence[bytes] = (),
        *,
        calls: ContextCalls | None = None,
        clock: WorkClock,
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        try:
            return await self._answer(method, fields, blobs, calls, clock)
        except TimedOut:
            raise EnvironmentFailed(f"{method} took longer than {clock.limit:g} s, and was ended") from None

    async def _answer(
        self,
        method: str,
        fields: Mapping[str, Any],
        blobs: Sequence[bytes],
        calls: ContextCalls | None,
        clock: WorkClock,
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        if self._process is not None:
            answer = await self._process.call(method, fields, blobs, calls, clock)
            return answer.fields, answer.blobs
        nested = current_caller.get()
        async with AsyncExitStack() as lent:
            with clock.waiting():  # other callers and a new process's start take no time of this one
                process = await lent.enter_async_context(self._pool.lent())
            inside = nested is not None and nested.process is process
            answer = await process.call(method, fields, blobs, calls, clock, nested=inside)
            return answer.fields, answer.blobs
