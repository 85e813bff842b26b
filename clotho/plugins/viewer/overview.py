"""Content of the pages of all runs and of one run, beside the rows of the index."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clotho.errors import ClothoError
from clotho.identifiers.ids import campaign_id, group_of, run_of
from clotho.identifiers.keys import campaign_request_prefix, repairs_prefix
from clotho.journal import Journal
from clotho.plugins.viewer.listing import RunSums
from clotho.plugins.viewer.rollout import OpenRollout, attempt_failures, open_rollouts
from clotho.plugins.viewer.rows import GroupRow
from clotho.plugins.viewer.run_index import RunIndex, RunIndexes
from clotho.plugins.viewer.workflows import Workflows
from clotho.rollouts.campaign import CampaignRequest
from clotho.rollouts.group import RepairEntry
from clotho.rollouts.run import RunManifest
from clotho.runs.budgets import RunLedger, budget_text, read_budget
from clotho.runs.manifest import list_runs, opened_at, read_manifest
from clotho.runs.pauses import reason_for

PATIENCE_SECONDS = 0.7
"""That a page waits for an index, before it shows what there is and says so."""
BESIDE_PATIENCE_SECONDS = 0.2
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
    started: float | None = None
    """Unix time; None where the store doesn't know it."""
    ended: float | None = None
    """Unix time at which the last of its groups were scored; None where none is."""
    cost: float | None = None
    """US dollars of the scored groups; None without prices."""
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

    @property
    def seconds(self) -> float | None:
        """How long it has taken so far, pauses included."""
        end = time.time() if self.state == "running" else self.ended
        return max(0.0, end - self.started) if self.started is not None and end is not None else None


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
        """All runs, the latest first."""
        names = sorted(await list_runs(self._journal), reverse=True)
        facts = await asyncio.gather(*(self._facts_or_problem(name) for name in names))
        return sorted(facts, key=lambda each: -(each.started or 0.0))

    async def facts(self, run: str) -> RunFacts:
        """Raises InvalidInput for an unknown run."""
        manifest = await read_manifest(self._journal, run)
        index = self._indexes.of(run)
        await index.look(PATIENCE_SECONDS)
        request = await self._journal.latest(campaign_request_prefix(run), CampaignRequest)
        total = min(request.groups, index.total or request.groups) if request is not None else None
        sums, budget = await index.sums(), await read_budget(self._journal, run)
        price = budget.price if budget is not None else None
        return RunFacts(
            run,
            manifest,
            index,
            sums,
            total,
            await reason_for(self._journal, run),
            await self._workflows.state(campaign_id(run)),
            await self._failures(run),
            await opened_at(self._journal, run),
            max((row.ended for row in index.rows.values() if row.ended is not None), default=None),
            price.cost(*sums.spent) if price is not None else None,
        )

    async def neighbours(self, rollout: str) -> tuple[str | None, str | None]:
        """The rollouts before and after one: its siblings, then those of the scored groups beside its own."""
        group = group_of(rollout)
        names = [each.rollout for each in await open_rollouts(self._journal, group)]
        at = names.index(rollout) if rollout in names else 0
        before, after = await self.groups_beside(group)
        earlier = names[at - 1] if at else f"{before.group}/{before.rollouts[-1].name}" if before else None
        later = f"{after.group}/{after.rollouts[0].name}" if after else None
        return earlier, names[at + 1] if at + 1 < len(names) else later

    async def groups_beside(self, group: str) -> tuple[GroupRow | None, GroupRow | None]:
        """The scored groups before and after one, as far as the index of its run is read."""
        index = self._indexes.of(run_of(group))
        await index.look(BESIDE_PATIENCE_SECONDS)
        return index.beside(group)

    async def spending(self, run: str) -> str | None:
        """Return what a run with a budget or prices has spent, as text; None for another run."""
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
        except ClothoError as error:  # a damaged run doesn't take the page from all others
            index = self._indexes.of(run)
            return RunFacts(run, None, index, await index.sums(), None, None, None, {}, problem=str(error))
