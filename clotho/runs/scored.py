"""The groups of a run as they are scored: each is read once."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry
from clotho.runs.groups import group_ids, scored_among
from clotho.temporal.search_attributes import RUN
from clotho.temporal.states import workflow_ids

LAG = timedelta(seconds=30)
"""Time by which visibility may be late."""

Scored = list[tuple[str, GroupEntry]]


class ScoredGroups:
    """Reads all scored groups at first, then those whose workflows have completed since."""

    def __init__(self, journal: Journal, client: Client, run: str) -> None:
        self.known: set[str] = set()
        """Groups that were given."""
        self._journal = journal
        self._client = client
        self._run = run
        self._looked: datetime | None = None

    async def new(self) -> Scored:
        """Groups scored since the last call. Raises RPCError and StoreUnavailable."""
        # the time before the look: what completes during it is listed again, and `known` by then
        started = datetime.now(UTC)
        if self._looked is None:
            candidates: Sequence[str] = await group_ids(self._journal, self._run)
            if not candidates:
                return []
        else:
            since = (self._looked - LAG).isoformat()
            query = (
                f"{RUN} = '{self._run}' AND WorkflowType = 'RolloutGroup' AND ExecutionStatus = 'Completed'"
            )
            candidates = await workflow_ids(self._client, f"{query} AND CloseTime > '{since}'")
        found = await self._read(candidates)
        self._looked = started
        return found

    async def rest(self) -> Scored:
        """All scored groups that weren't returned yet, whether or not visibility lists them."""
        return await self._read(await group_ids(self._journal, self._run))

    async def _read(self, groups: Sequence[str]) -> Scored:
        left = [group for group in groups if group not in self.known]
        found = [scored async for scored in scored_among(self._journal, left)]
        self.known.update(group for group, _ in found)
        return found
