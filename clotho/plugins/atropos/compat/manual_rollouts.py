"""Rollouts that an environment drives itself, as evaluations of the in-memory design do.

The agent's part runs as a workflow. Its verification then waits, with the sandbox open, until the environment has
looked into it and calls `cleanup`.
"""

import asyncio
import hashlib
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import JsonValue

from clotho.environment import AgentResult
from clotho.environment.tool_context import AsyncToolContext
from clotho.environment.tool_context import ToolContext as RewardContext
from clotho.errors import InvalidInput
from clotho.models.endpoint import Endpoint
from clotho.plugins.atropos.compat.tasks import OpenTask, cleanup_all_environments, directory_of, open_tasks
from clotho.plugins.atropos.compat.tool_budget import BudgetConfig
from clotho.rollouts.item import Item
from clotho.rollouts.run import RunManifest, ToolSelection
from clotho.runs.adapter_runs import open_adapter_run
from clotho.runs.group_workflows import Groups
from clotho.runs.ledger import Ledger
from clotho.tools.registry import Registry

MANUAL = "~manual"
"""The field of an item that holds the messages of such a rollout."""
LONGEST_LOOK = 6 * 3600.0
"""Seconds after which a context that wasn't cleaned up is released."""
LAST_STEPS = 30.0

log = logging.getLogger("clotho.plugins.atropos")


class HeldContext(RewardContext):
    """A rollout's workspace until `cleanup`."""

    def __init__(self, aio: AsyncToolContext, loop: asyncio.AbstractEventLoop, done: threading.Event) -> None:
        super().__init__(aio, loop)
        self._done = done

    def cleanup(self) -> None:
        super().cleanup()
        self._done.set()


class ToolContext(RewardContext):
    """`ToolContext(task_id)`: the workspace of a rollout that `HermesAgentLoop` ran under that id."""

    def __new__(cls, task_id: str) -> Any:
        task = open_tasks.get(task_id)
        if task is None or task.context is None:
            raise InvalidInput(f"no HermesAgentLoop has run under the task id {task_id!r}")
        return task.context


@dataclass(frozen=True)
class LoopSettings:
    """Settings of an agent loop, beside its messages."""

    temperature: float
    max_tokens: int | None
    extra_body: dict[str, Any]
    max_turns: int
    tools: tuple[str, ...] | None
    """Names of the tools to offer; None: the run's."""
    budget: BudgetConfig | None
    directory: str | None

    def applied_to(self, manifest: RunManifest) -> RunManifest:
        sampling = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "extra_body": self.extra_body,
        }
        settings = manifest.tool_settings
        if self.budget is not None:
            settings = self.budget.applied_to(settings)
        if self.directory is not None:
            settings = settings.model_copy(update={"terminal_cwd": self.directory})
        update: dict[str, Any] = {
            "sampling": manifest.sampling.model_copy(update=sampling),
            "limits": manifest.limits.model_copy(update={"max_turns": self.max_turns}),
            "tool_settings": settings,
            "group_size": 1,
            "system_prompt": None,
        }
        if self.tools is not None:
            update["selection"] = ToolSelection(tools=self.tools)
        return manifest.model_copy(update=update)


class ManualRollouts:
    """Runs manual rollouts, each as a group of one, on the adapter's event loop."""

    def __init__(self, manifest: RunManifest, endpoint: Endpoint, groups: Groups) -> None:
        self._manifest = manifest
        self._endpoint = endpoint
        self._groups = groups
        self._home = asyncio.get_running_loop()
        self._ledgers: dict[str, Ledger] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._stall_reasons: dict[str, str] = {}

    async def run(
        self, task_id: str, messages: Sequence[dict[str, Any]], settings: LoopSettings
    ) -> AgentResult:
        """Run the agent, and keep its sandbox. Callable from every event loop."""
        work = self._run(task_id, list(messages), settings)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    async def _run(self, task_id: str, messages: list[JsonValue], settings: LoopSettings) -> AgentResult:
        # a run for each set of settings, apart from training; 48 + 16 characters: a run's name has 64 at most
        manifest = settings.applied_to(self._manifest)
        digest = hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()[:8]
        manifest = manifest.model_copy(update={"run": f"{self._manifest.run[:48]}-manual-{digest}"})
        await open_adapter_run(self._groups.journal, manifest, self._endpoint, self._groups.order)
        ledger = self._ledgers.setdefault(manifest.run, Ledger(self._groups.journal, manifest.run))
        claim = await ledger.claim({"id": task_id, MANUAL: messages}, 0)
        groups = replace(self._groups, manifest=manifest)

        def cancel() -> None:
            asyncio.run_coroutine_threadsafe(groups.cancel(claim), self._home)

        task = open_tasks[task_id] = OpenTask(claim.group, self._home.create_future(), cancel)
        whole = asyncio.create_task(groups.until_scored(claim, partial(self._wait_for, task_id)))
        self._running.add(whole)
        whole.add_done_callback(lambda _: self._end(task_id, whole))
        await asyncio.wait((whole, task.result), return_when=asyncio.FIRST_COMPLETED)
        if not task.result.done():
            # the whole workflow ended without a hand-over: it failed, which is raised, or it had been scored before
            self._stall_reasons.setdefault(task_id, "its group was given up")
            await whole
            raise InvalidInput(f"task id {task_id!r} was used before: its rollout is scored")
        self._stall_reasons.pop(task_id, None)
        return task.result.result()

    def take_failed(self) -> dict[str, str]:
        """Tasks that failed without a result since the last call, and why."""
        failed, self._stall_reasons = self._stall_reasons, {}
        return failed

    async def close(self) -> None:
        """Release all workspaces, and wait until their rollouts have ended."""
        cleanup_all_environments()
        if self._running:
            await asyncio.wait(self._running, timeout=LAST_STEPS)

    def hand_over(self, item: Item, result: AgentResult, context: RewardContext) -> float:
        """Hand the workspace over to the environment until `cleanup`: the verification of a manual rollout."""
        task = open_tasks.get(str(item["id"]))
        if task is None:
            return 0.0  # the loop that drove it is gone
        task.context = HeldContext(context.aio, self._home, task.done)
        self._home.call_soon_threadsafe(_set, task.result, result)
        task.done.wait(LONGEST_LOOK)
        return 0.0

    def _wait_for(self, task_id: str, why: str) -> None:
        self._stall_reasons[task_id] = why
        log.warning("task %s waits: %s", task_id, why)

    def _end(self, task_id: str, whole: asyncio.Task[Any]) -> None:
        self._running.discard(whole)
        open_tasks.pop(task_id, None)
        if not whole.cancelled() and whole.exception() is not None:
            log.warning("task %s: %s", task_id, whole.exception())


class HermesAgentLoop:
    """The agent loop as evaluations call it.

    `tool_schemas` and `valid_tool_names` offer some of Clotho's tools; without them, those of the run. Raises
    InvalidInput for tools, or descriptions of tools, that aren't Clotho's.
    """

    def __init__(
        self,
        server: Any,
        tool_schemas: Sequence[dict[str, Any]] | None = None,
        valid_tool_names: Iterable[str] | None = None,
        max_turns: int = 30,
        task_id: str | None = None,
        temperature: float = 1.0,
        max_tokens: int | None = None,
        extra_body: dict[str, Any] | None = None,
        budget_config: BudgetConfig | None = None,
    ) -> None:
        if task_id is None:
            raise InvalidInput("give HermesAgentLoop a task_id: ToolContext finds its workspace by it")
        self._manual_rollouts: ManualRollouts = server.manual_rollouts
        self._task_id = task_id
        self._settings = LoopSettings(
            temperature=temperature,
            max_tokens=max_tokens,
            extra_body=extra_body or {},
            max_turns=max_turns,
            tools=offered_names(tool_schemas, valid_tool_names),
            budget=budget_config,
            directory=directory_of(task_id),
        )

    async def run(self, messages: Sequence[dict[str, Any]]) -> AgentResult:
        return await self._manual_rollouts.run(self._task_id, messages, self._settings)


def offered_names(
    schemas: Sequence[dict[str, Any]] | None, names: Iterable[str] | None
) -> tuple[str, ...] | None:
    """The tools that both name, sorted; None where neither is given. Raises InvalidInput for other tools."""
    if schemas is None:
        return None if names is None else tuple(sorted(names))
    registry = Registry.discover()
    described = {str(schema["function"]["name"]): schema for schema in schemas}
    for name, schema in described.items():
        tool = registry.get(name)
        if tool is None or tool.schema() != schema:
            raise InvalidInput(
                f"tool_schemas describe {name} otherwise than Clotho's tools are: leave it out"
            )
    return tuple(sorted(described.keys() if names is None else described.keys() & set(names)))


def _set(future: "asyncio.Future[AgentResult]", result: AgentResult) -> None:
    if not future.done():
        future.set_result(result)
