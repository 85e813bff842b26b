"""What the pages of all runs and of one run show beside the rows of its index."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clotho.errors import ClothoError
from clotho.identifiers.ids import campaign_id
from clotho.identifiers.run_keys import campaign_request_prefix, repairs_prefix
from clotho.journal import Journal
from clotho.plugins.viewer.listing import RunSums
from clotho.plugins.viewer.rollout import OpenRollout, attempt_failures, open_rollouts
from clotho.plugins.viewer.run_index import RunIndex, RunIndexes
from clotho.plugins.viewer.workflows import Workflows
from clotho.rollouts.campaign import CampaignRequest
from clotho.rollouts.group import RepairEntry
from clotho.rollouts.run import RunManifest
from clotho.runs.budgets import RunLedger, budget_text
from clotho.runs.manifest import list_runs, read_manifest
from clotho.runs.pauses import reason_for

PATIENCE_SECONDS = 0.7
"""That a page waits for an index, before it shows what there is and says so."""
OPEN_SHOWN = 40


@dataclass(frozen=True)
class RunFacts:
    """A run at a glance."""

    run: str
    manifest: RunManifest | None
    index: RunIndex
    sums: RunSums
    total: int | None
    """Groups that it is to have; None where an adapter draws them one by one."""
    paused: str | None
    """Why the whole run is paused; None if it isn't."""
    workflow: str | None
    """The state of its campaign in Temporal; None where it isn't known."""
    failures: Mapping[str, int]
    """Kind -> failures that were repaired."""
    problem: str | None = None

    @property
    def state(self) -> str:
        scored = len(self.index.rows)
        if self.problem is not None:
            return "unreadable"
        if not self.index.known:
            return "being read"
        if self.total is not None and scored >= self.total:
            return "scored"
        if self.paused is not None:
            return "paused"
        return self.workflow or "unfinished"


@dataclass(frozen=True)
class OpenGroup:
    group: str
    rollouts: Sequence[OpenRollout]
    failures: Mapping[tuple[str, str], int]
    """Kind and reason -> failures of its attempts that ended incomplete."""


class Overview:
    """Reads runs from the store, and their states from Temporal where it answers."""

    def __init__(self, journal: Journal, indexes: RunIndexes, workflows: Workflows) -> None:
        self._journal = journal
        self._indexes = indexes
        self._workflows = workflows
        self._ledgers: dict[str, RunLedger] = {}

    async def runs(self) -> list[RunFacts]:
        names = await list_runs(self._journal)
        return list(await asyncio.gather(*(self._facts_or_problem(name) for name in names)))

    async def facts(self, run: str) -> RunFacts:
        """Raises InvalidInput for an unknown run."""
        manifest = await read_manifest(self._journal, run)
        index = self._indexes.of(run)
        await index.look(PATIENCE_SECONDS)
        request = await self._journal.latest(campaign_request_prefix(run), CampaignRequest)
        total = min(request.groups, index.total or request.groups) if request is not None else None
        return RunFacts(
            run,
            manifest,
            index,
            await index.sums(),
            total,
            await reason_for(self._journal, run),
            await self._workflows.state(campaign_id(run)),
            await self._failures(run),
        )

    async def spending(self, run: str) -> str | None:
        """What a run with a budget or prices has spent, and of what; None for another run."""
        ledger = self._ledgers.setdefault(run, RunLedger(self._journal, run))
        return await budget_text(self._journal, run, ledger)

    async def open_groups(self, run: str) -> list[OpenGroup]:
        """Groups that have begun and aren't scored, the first forty."""
        candidates = self._indexes.of(run).begun_candidates[:OPEN_SHOWN]
        groups = await asyncio.gather(*(self._open_group(group) for group in candidates))
        return [each for each in groups if each.rollouts or each.failures]

    async def _open_group(self, group: str) -> OpenGroup:
        rollouts = await open_rollouts(self._journal, group)
        failures = await attempt_failures(self._journal, group)
        return OpenGroup(group, rollouts, Counter((each.kind, each.reason) for each in failures))

    async def _failures(self, run: str) -> dict[str, int]:
        keys = await self._journal.keys(repairs_prefix(run))
        repairs = await self._journal.read_many(keys, RepairEntry)
        return dict(Counter(each.failure.kind for each in repairs if each is not None).most_common())

    async def _facts_or_problem(self, run: str) -> RunFacts:
        try:
            return await self.facts(run)
        except ClothoError as error:
            index = self._indexes.of(run)
            return RunFacts(run, None, index, await index.sums(), None, None, None, {}, str(error))
