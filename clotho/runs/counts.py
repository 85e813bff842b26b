"""Counts of a run so far, rollout by rollout, also in groups that still run."""

import asyncio
from collections.abc import Iterable

from temporalio.client import Client

from clotho.identifiers.ids import depth_of
from clotho.identifiers.keys import end_key
from clotho.journal import Journal
from clotho.rollouts.rollout import EndEntry, Work
from clotho.rollouts.turn import TurnEntry
from clotho.runs.scored import ScoredGroups
from clotho.temporal.failures import Failure, failure_of
from clotho.temporal.search_attributes import OUTCOME, PAUSED, RUN
from clotho.temporal.states import workflow_ids

OPEN_GROUPS = 200
"""Open groups that are counted; a run with more shows what the others did when they are scored."""
FAILED_ROLLOUTS = 20


class RunCounts(Work):
    """Work done, in scored groups and in those that run."""

    failed: tuple[str, ...] = ()
    """Rollouts that have failed and weren't started again, up to twenty."""
    first_failure: str | None = None
    paused: int = 0
    """Rollouts that wait at a turn's boundary."""

    def with_turns(self, turns: Iterable[TurnEntry], tool_calls: int) -> "RunCounts":
        """Add turns and tool calls of rollouts that haven't ended."""
        sampled = [turn.sampled for turn in turns]
        tokens = sum(each.usage.completion_tokens for each in sampled if each is not None)
        return self.model_copy(
            update={
                "turns": self.turns + len(sampled),
                "tool_calls": self.tool_calls + tool_calls,
                "sampled_tokens": self.sampled_tokens + tokens,
            }
        )


class RunCounter:
    """Counts a run again and again: what is scored is read once, groups that run are listed each time."""

    def __init__(self, journal: Journal, client: Client, run: str) -> None:
        self._journal = journal
        self._client = client
        self._run = run
        self._query = f"{RUN} = '{run}' AND WorkflowType = "
        self._scored = ScoredGroups(journal, client, run)
        self._done = RunCounts()
        self._failures: dict[str, Failure] = {}

    async def count(self) -> RunCounts:
        """Count the run's rollouts. Raises RPCError and StoreUnavailable."""
        for _, entry in await self._scored.new():
            self._done = self._done.with_ends(entry.siblings)
        counts = self._done
        running = f"{self._query}'RolloutGroup' AND ExecutionStatus = 'Running'"
        for group in await workflow_ids(self._client, running, OPEN_GROUPS):
            if group not in self._scored.known:
                counts = await self._with_open(counts, group)
        paused = f"{self._query}'Rollout' AND ExecutionStatus = 'Running' AND {OUTCOME} = '{PAUSED}'"
        failed = await self._failed()
        return counts.model_copy(
            update={
                "paused": (await self._client.count_workflows(paused)).count,
                "failed": tuple(failed),
                "first_failure": next((f"{name}: {one.last_line}" for name, one in failed.items()), None),
            }
        )

    async def _with_open(self, counts: RunCounts, group: str) -> RunCounts:
        keys = await self._journal.keys(f"{group}/")
        begun = {key.rpartition("/turn/")[0] for key in keys if "/turn/" in key}
        # a child counts with the rollout whose task it does
        rollouts = {each for each in begun if not depth_of(each)}
        # the entries of a sealed rollout may be pruned, its end among them
        sealed = {key.removesuffix("/sealed") for key in keys if key.endswith("/sealed")}
        ended = {key.removesuffix("/end") for key in keys if key.endswith("/end")} | sealed
        ends = await self._journal.read_many([end_key(each) for each in sorted(ended)], EndEntry)
        open_ = rollouts - ended
        turns = [key for key in keys if "/turn/" in key and key.rpartition("/turn/")[0] in open_]
        calls = [key for key in keys if "/call/" in key and key.rpartition("/call/")[0] in open_]
        read = await self._journal.read_many(turns, TurnEntry)
        summaries = [end.summary for end in ends if end is not None]
        counts = counts.with_ends(each for each in summaries if each.parent is None)
        return counts.with_turns((turn for turn in read if turn is not None), len(calls))

    async def _failed(self) -> dict[str, Failure]:
        """The rollouts whose last execution failed, and why."""
        # visibility lists executions: one that failed stays listed when its rollout was started again
        query = f"{self._query}'Rollout' AND ExecutionStatus = 'Failed'"
        listed = [each async for each in self._client.list_workflows(query, limit=FAILED_ROLLOUTS)]
        latest = await asyncio.gather(
            *(self._client.get_workflow_handle(each.id).describe() for each in listed)
        )
        found: dict[str, Failure] = {}
        for each in latest:
            # by execution: an ended one fails no differently later, and its failure costs a request
            failure = self._failures.get(each.run_id) or await failure_of(self._client, each)
            if failure is not None:
                found[each.id] = self._failures[each.run_id] = failure
        return found
