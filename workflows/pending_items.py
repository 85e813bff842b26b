"""The items of a campaign whose groups are still to be started."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.groups import Groups
    from clotho.rollouts.campaign import CampaignRequest, ItemsRequest, UnfinishedRequest

from workflows.steps import run_activity


class PendingItems:
    """Items in the manifest's order, looked up a part at a time; those whose groups are scored are skipped.

    Items that are added to the run while it goes on are taken up at once.
    """

    def __init__(self, request: CampaignRequest) -> None:
        self._run = request.run
        self._environment = request.task_queues.environment
        self._look_ahead = request.look_ahead
        self.wanted = request.groups
        self.enumerated = 0 if request.progress is None else request.groups
        """The number that was wanted when the dataset was last asked."""
        self.groups = 0 if request.progress is None else request.progress.groups
        """The number that there is of those."""
        self.next_group = request.next_group
        self.skipped = 0 if request.progress is None else request.progress.skipped
        self.waiting = list(request.waiting)

    @property
    def added(self) -> bool:
        """Whether more are wanted than the dataset was asked for."""
        return self.wanted > self.enumerated

    @property
    def to_fetch(self) -> bool:
        """Whether `fetch` may bring items that can be started."""
        return self.added or (not self.waiting and self.next_group < self.groups)

    @property
    def left(self) -> bool:
        return bool(self.waiting) or self.to_fetch

    async def fetch(self) -> None:
        """Take added items from the dataset; if there are none, look up the next whose groups aren't scored."""
        if self.added:
            await self.enumerate()
        else:
            first = self.next_group
            found = await self._unfinished()
            self.waiting += found
            self.skipped += self.next_group - first - len(found)

    async def enumerate(self) -> None:
        """Write the wanted items into the store."""
        wanted = ItemsRequest(run=self._run, groups=self.wanted)
        self.groups = await run_activity(Groups.enumerate_items, wanted, self._environment, "enumerate items")
        self.enumerated = wanted.groups

    async def unscored(self) -> list[int]:
        """All items whose groups aren't scored, looked up again."""
        found: list[int] = []
        self.next_group = 0
        while self.next_group < self.groups:
            found += await self._unfinished()
        return found

    async def _unfinished(self) -> tuple[int, ...]:
        first = self.next_group
        request = UnfinishedRequest(run=self._run, first=first, last=self.groups, at_once=self._look_ahead)
        what = f"look up groups from {first}"
        found = await run_activity(Groups.unfinished_groups, request, self._environment, what)
        self.next_group = found.next_group
        return found.items
