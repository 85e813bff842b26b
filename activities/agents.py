"""Activities of agents that are programs with a loop of their own."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.guard import activity_guard
from activities.sandbox import Sandboxes
from clotho import failpoints
from clotho.errors import HostUnavailable, Unavailable
from clotho.identifiers.keys import (
    agent_key,
    asked_key,
    asked_prefix,
    asked_tools_key,
    prompt_key,
    servers_prefix,
    turn_key,
)
from clotho.journal import Journal
from clotho.plugin import load_with_needs, plugins
from clotho.rollouts.agent_program import AgentProgram, AnsweredTurn, ProgramEntry, ProgramServer, Stage
from clotho.rollouts.asked import AskedEntry, AskedTools
from clotho.rollouts.program_end import AskedTurn, ProgramEnd, ProgramRequest
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry
from clotho.runs.manifest import read_capabilities, read_manifest

T = TypeVar("T")

log = logging.getLogger("clotho")

UPDATE = "sample_asked"
"""The update of the rollout's workflow that samples a turn."""
AGAIN_SECONDS = 0.5
NO_WORKFLOW = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION)


class Agents:
    """Activities of the queues where sandboxes live."""

    def __init__(self, journal: Journal, sandboxes: Sandboxes, queue: str, client: Client) -> None:
        """`queue` is the task queue of this process."""
        self._journal = journal
        self._sandboxes = sandboxes
        self._queue = queue
        self._client = client

    @activity.defn
    async def run_program(self, request: ProgramRequest) -> ProgramEnd:
        """Run the agent's program in a sandbox to its end, or find how it ended in the journal.

        The work is no flight of the journal. An attempt only serves the program, which loses nothing by its end:
        the next attempt takes over at once, in whatever process. A worker that shuts down waits for none.
        """
        key = agent_key(request.rollout, request.lease)
        async with activity_guard(request.rollout):
            if (entry := await self._journal.read(key, ProgramEntry)) is None:
                entry = await self._journal.write(key, await _unless_shut_down(self._run(request)))
            await failpoints.reach("program.journalled", key)
        return entry.end

    async def _run(self, request: ProgramRequest) -> ProgramEntry:
        rollout = request.rollout
        # One fenced off by the sandbox's port may still ask the journal and the workflow: both answer alike.
        server = await self._drawn_number(rollout)
        manifest = await read_manifest(self._journal, request.run)
        served = await read_capabilities(self._journal, request.run)
        prompt = await self._journal.read_required(prompt_key(rollout), Prompt)
        stage = Stage(
            rollout=rollout,
            manifest=manifest,
            prompt=prompt,
            sandbox=await self._sandboxes.attach(rollout, request.lease),
            lease=request.lease,
            server=server,
            context_tokens=served.context if served is not None else None,
            seconds_left=request.seconds_left,
            counted=request.asked,
            asked=partial(self._asked, rollout),
            turns=partial(self._turns, rollout),
            ask=partial(self._ask, rollout, set()),
            answer=partial(self._answer, rollout, asyncio.Lock()),
        )
        entry = await program_named(prompt.program)(stage)
        await failpoints.reach("program.ended", agent_key(rollout, request.lease))
        # Before its end is known: a sandbox that is lost later comes back as the program left it.
        await self._sandboxes.checkpoint_as_left(rollout, request.lease, manifest.checkpoint_mb)
        return entry

    async def _drawn_number(self, rollout: str) -> int:
        """The number of this attempt as the program's server, higher than those of servers before it.

        Raises Unavailable where a later attempt has drawn one. Temporal gives tasks to a frozen process, too: five
        such attempts, one after another, took the port from the sixth when their process went on.
        """
        info, prefix = activity.info(), servers_prefix(rollout)
        this = f"{info.workflow_run_id}/{info.activity_id}"
        own = ProgramServer(queue=self._queue, activity=this, attempt=info.attempt)
        while True:
            last, server = await self._journal.latest_numbered(prefix, ProgramServer) or (None, None)
            if server is not None and server.activity == this and server.attempt > own.attempt:
                raise Unavailable("a later attempt serves the agent's program")
            if (number := await self._journal.append_after(prefix, last, own)) is not None:
                return number + 1

    async def _asked(self, rollout: str) -> dict[int, AskedEntry]:
        keys = await self._journal.keys(asked_prefix(rollout))
        entries = await self._journal.read_many(keys, AskedEntry)
        numbered = zip(keys, entries, strict=True)
        return {int(key.rpartition("/")[2]): entry for key, entry in numbered if entry is not None}

    async def _turns(self, rollout: str, numbers: list[int]) -> dict[int, TurnEntry]:
        entries = await self._journal.read_many([turn_key(rollout, number) for number in numbers], TurnEntry)
        return {number: entry for number, entry in zip(numbers, entries, strict=True) if entry is not None}

    async def _ask(
        self, rollout: str, kept_tools: set[str], number: int, asked: AskedEntry, tools: AskedTools
    ) -> int:
        if asked.tools not in kept_tools:  # those of one program are nearly always the same
            await self._journal.write(asked_tools_key(rollout, asked.tools), tools)
            kept_tools.add(asked.tools)
        while (kept := await self._journal.write(asked_key(rollout, number), asked)) != asked:
            # an earlier attempt or start has kept this call: its number is the turn that answers it
            if kept.call == asked.call:
                break
            number += 1
        return number

    async def _answer(self, rollout: str, in_order: asyncio.Lock, turn: int) -> AnsweredTurn:
        answered = await self._updated(rollout, in_order, turn)
        if answered.failed:
            await asyncio.Event().wait()  # until the workflow's cancel comes
        if answered.limit is not None:
            return AnsweredTurn(None, answered.limit)
        return AnsweredTurn(await self._journal.read_required(turn_key(rollout, turn), TurnEntry))

    async def _updated(self, rollout: str, in_order: asyncio.Lock, turn: int) -> AskedTurn:
        """Ask the workflow for a turn until it answers: an update may die with its server, and keeps its id.

        The workflow takes turns in the order of their numbers, so that a limit leaves none out between others.
        """
        workflow = self._client.get_workflow_handle(rollout)
        while True:
            try:
                async with in_order:
                    update = await workflow.start_update(
                        UPDATE,
                        turn,
                        wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                        id=f"turn-{turn}",
                        result_type=AskedTurn,
                    )
                # outside the lock: turns are accepted in order, and sampled side by side
                answered: AskedTurn = await update.result()
                return answered
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                # the SDK raises this in place of CancelledError, too
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
            except WorkflowUpdateFailedError as error:
                # a workflow that continues as new refuses updates: its next run takes them
                log.info("turn %d of %s is asked for again: %s", turn, rollout, error.cause)
            except RPCError as error:
                if error.status in NO_WORKFLOW:
                    raise Unavailable(f"the workflow of {rollout} takes no updates: {error}") from error
            await asyncio.sleep(AGAIN_SECONDS)


async def _unless_shut_down(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which ends where this worker begins to shut down."""
    working = asyncio.create_task(work)
    shut_down = asyncio.create_task(activity.wait_for_worker_shutdown())
    try:
        await asyncio.wait({working, shut_down}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Unavailable("this worker shuts down")
        return await working
    finally:
        for task in (working, shut_down):
            task.cancel()
        await asyncio.gather(working, shut_down, return_exceptions=True)


def program_named(name: str | None) -> AgentProgram:
    """The program that a run's agent is. Raises HostUnavailable where no plugin of this host offers it."""
    for plugin in plugins().values():
        if name is not None and (target := plugin.agents.get(name)) is not None:
            program: AgentProgram = load_with_needs(plugin, target)
            return program
    raise HostUnavailable(f"no plugin of this host offers the agent {name!r}: install its package there")
