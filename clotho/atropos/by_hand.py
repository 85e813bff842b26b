"""Rollouts that an environment drives by hand, as evaluations of the in-memory design do: durable all the same.

The agent's part runs as a workflow. Its verification then waits, with the sandbox open, until the environment has
looked into it and calls `cleanup`.
"""

import asyncio
import hashlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import JsonValue

from clotho.atropos.ledger import Ledger
from clotho.atropos.rollouts import Groups
from clotho.entries.items import Item
from clotho.entries.run import Endpoint, RunManifest
from clotho.environment import AgentResult
from clotho.environment.tool_context import AsyncToolContext
from clotho.environment.tool_context import ToolContext as RewardContext
from clotho.errors import InvalidInput
from clotho.runs.drawn import open_drawn_run

BY_HAND = "~by-hand"
"""The field of an item that holds the messages of such a rollout."""
LONGEST_LOOK = 6 * 3600.0
"""Seconds after which a context that nobody cleaned up is let go."""
LAST_STEPS = 30.0

log = logging.getLogger("clotho.atropos")


@dataclass
class Parked:
    """A rollout between its last turn and its `cleanup`."""

    result: "asyncio.Future[AgentResult]"
    context: "HeldContext | None" = None
    done: threading.Event = field(default_factory=threading.Event)


class HeldContext(RewardContext):
    """A rollout's workspace until `cleanup`."""

    def __init__(self, aio: AsyncToolContext, loop: asyncio.AbstractEventLoop, done: threading.Event) -> None:
        super().__init__(aio, loop)
        self._done = done

    def cleanup(self) -> None:
        self._done.set()


_parked: dict[str, Parked] = {}


class ToolContext(RewardContext):
    """`ToolContext(task_id)`: the workspace of a rollout that `HermesAgentLoop` ran under that id."""

    def __new__(cls, task_id: str) -> Any:
        parked = _parked.get(task_id)
        if parked is None or parked.context is None:
            raise InvalidInput(f"no HermesAgentLoop has run under the task id {task_id!r}")
        return parked.context


class Hand:
    """Runs such rollouts, each as a group of one, on the event loop of the adapter."""

    def __init__(self, manifest: RunManifest, endpoint: Endpoint, groups: Groups) -> None:
        self._manifest = manifest
        self._endpoint = endpoint
        self._groups = groups
        self._home = asyncio.get_running_loop()
        self._ledgers: dict[str, Ledger] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self, task_id: str, messages: Sequence[dict[str, Any]], asked: dict[str, Any]
    ) -> AgentResult:
        """What the agent came to; its sandbox stays. Callable from every event loop."""
        work = self._run(task_id, list(messages), asked)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    async def _run(self, task_id: str, messages: list[JsonValue], asked: dict[str, Any]) -> AgentResult:
        manifest = self._manifest_for(asked)
        await open_drawn_run(self._groups.journal, manifest, self._endpoint, self._groups.order)
        ledger = self._ledgers.setdefault(manifest.run, Ledger(self._groups.journal, manifest.run))
        claim = await ledger.claim({"id": task_id, BY_HAND: messages}, 0)
        parked = _parked[task_id] = Parked(self._home.create_future())
        groups = replace(self._groups, manifest=manifest)
        whole = asyncio.create_task(
            groups.until_scored(claim, lambda why: log.warning("%s: %s", claim.group, why))
        )
        self._running.add(whole)
        whole.add_done_callback(lambda _: self._end(task_id, whole))
        await asyncio.wait((whole, parked.result), return_when=asyncio.FIRST_COMPLETED)
        if not parked.result.done():
            await whole
            raise InvalidInput(f"task id {task_id!r} was used before: its rollout is scored")
        return parked.result.result()

    async def close(self) -> None:
        """Let all workspaces go, and wait until their rollouts have ended."""
        for parked in _parked.values():
            parked.done.set()
        if self._running:
            await asyncio.wait(self._running, timeout=LAST_STEPS)

    def park(self, item: Item, result: AgentResult, context: RewardContext) -> float:
        """Its verification: hand the workspace over, and keep it until `cleanup`. Runs in a thread."""
        parked = _parked.get(str(item["id"]))
        if parked is None:
            return 0.0  # whoever drove it is gone
        parked.context = HeldContext(context.aio, self._home, parked.done)
        self._home.call_soon_threadsafe(_set, parked.result, result)
        parked.done.wait(LONGEST_LOOK)
        return 0.0

    def _manifest_for(self, asked: dict[str, Any]) -> RunManifest:
        """One run for each way of sampling, apart from training."""
        sampling = self._manifest.sampling.model_copy(update=asked["sampling"])
        limits = self._manifest.limits.model_copy(update=asked["limits"])
        named = self._manifest.model_copy(
            update={"sampling": sampling, "limits": limits, "group_size": 1, "system_prompt": None}
        )
        digest = hashlib.sha256(named.model_dump_json().encode()).hexdigest()[:8]
        return named.model_copy(update={"run": f"{self._manifest.run[:48]}-hand-{digest}"})

    def _end(self, task_id: str, whole: asyncio.Task[Any]) -> None:
        self._running.discard(whole)
        _parked.pop(task_id, None)
        if not whole.cancelled() and whole.exception() is not None:
            log.warning("task %s: %s", task_id, whole.exception())


class HermesAgentLoop:
    """The agent loop as evaluations call it; tools are those of the run."""

    def __init__(
        self,
        server: Any,
        tool_schemas: Sequence[dict[str, Any]] = (),
        valid_tool_names: Sequence[str] | set[str] = (),
        max_turns: int = 30,
        task_id: str | None = None,
        temperature: float = 1.0,
        max_tokens: int | None = None,
        extra_body: dict[str, Any] | None = None,
    ) -> None:
        if task_id is None:
            raise InvalidInput("give HermesAgentLoop a task_id: ToolContext finds its workspace by it")
        self._hand: Hand = server.hand
        self._task_id = task_id
        self._asked = {
            "sampling": {
                "temperature": temperature,
                "max_tokens": max_tokens,
                "extra_body": extra_body or {},
            },
            "limits": {"max_turns": max_turns},
        }

    async def run(self, messages: Sequence[dict[str, Any]]) -> AgentResult:
        return await self._hand.run(self._task_id, messages, self._asked)


def _set(future: "asyncio.Future[AgentResult]", result: AgentResult) -> None:
    if not future.done():
        future.set_result(result)
