"""The ordered groups of one run: each name has an item and a group, and is rolled out once."""

import asyncio
from contextlib import suppress

from clotho_client.orders import Fetch, GroupAnswer, OrderState
from temporalio.exceptions import WorkflowAlreadyStartedError

from clotho.errors import GroupRejected, InvalidInput, JournalCorrupt, Rejection
from clotho.identifiers.ids import ITEM_NAME, adapter_group_id
from clotho.identifiers.keys import adapter_item_key
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import AdapterItem, Item
from clotho.runs.adapter_runs import start_work
from clotho.runs.group_workflows import Groups
from clotho.runs.ledger import Claim, Ledger
from clotho.training.rows import TrainingRow, check_staleness, training_group
from clotho.training.siblings import Exclusion, read_siblings

UNSTEPPED = 0
"""The step of an order that names none."""


class NotOrdered(InvalidInput):
    """There is no such run, or no group of that name in it."""


def ordered_group_id(run: str, name: str) -> str:
    """The group that an order's name stands for. Raises InvalidInput for names that ids can't have."""
    if ITEM_NAME.fullmatch(name) is None:
        raise InvalidInput(f"group name {name[:80]!r}: use 1 to 64 of letters, digits, _ and -")
    return adapter_group_id(run, f"i-{name}", 0)


class OrderedRun:
    """One run's orders. For one event loop; several processes may have the same run."""

    def __init__(self, journal: Journal, run: str, groups: Groups) -> None:
        self._journal = journal
        self._run = run
        self._groups = groups
        self._ledger = Ledger(journal, run)
        self._names: dict[str, Claim] = {}
        self._next = 0
        self._claiming = asyncio.Lock()
        self._awaited: dict[str, asyncio.Task[GroupEntry]] = {}
        self._delays: dict[str, str] = {}
        """Group -> the failure that it is tried again after."""

    @property
    def begun(self) -> bool:
        return bool(self._names)

    async def load(self) -> None:
        """Read the orders so far."""
        for claim in await self._ledger.load():
            self._keep(claim)

    async def order(self, name: str, item: Item, step: int | None) -> GroupAnswer:
        """Start the group, unless it was. Raises InvalidInput if the name stands for another item."""
        group = ordered_group_id(self._run, name)
        async with self._claiming:
            while (claim := self._names.get(name)) is None:
                entry = AdapterItem(item=item, group=group, step=UNSTEPPED if step is None else step)
                # another process may have taken the number, for this name too
                written = await self._journal.write(adapter_item_key(self._run, self._next), entry)
                self._keep(Claim(self._next, written.group, written.item, written.step))
        if claim.item != item:
            raise InvalidInput(f"{self._run} has another item under the name {name}")
        # also for a known name: a process that died after its claim has left the group without a workflow
        if await self._ledger.delivery(claim.group) is None and await self._groups.scored(claim) is None:
            request = self._groups.order.group(self._groups.manifest, claim.group, claim.number)
            with suppress(WorkflowAlreadyStartedError):
                await start_work(self._groups.client, request)
        return await self.answer(name, Fetch())

    async def answer(self, name: str, how: Fetch) -> GroupAnswer:
        """The group's state, waited for as asked, and its rows once it is finished. Raises NotOrdered."""
        claim = self._claim(name)
        delivery = await self._ledger.delivery(claim.group)
        answer = GroupAnswer(name=name, group=claim.group, state=OrderState.OPEN)
        if delivery is not None and delivery.reason is not None:
            return _refused(answer, delivery.reason, delivery.detail)
        try:
            entry = await self._scored(claim, how.wait)
        except GroupRejected as rejected:
            await self._refuse(claim, rejected)
            return _refused(answer, rejected.reason, str(rejected))
        if entry is None:
            delay = self._delays.get(claim.group)
            return answer.model_copy(update={"reason": delay and "failing", "detail": delay or ""})
        answer = answer.model_copy(update={"acknowledged": delivery is not None})
        try:
            rows = await self._rows(claim, entry, how)
        except GroupRejected as rejected:
            return _refused(answer, rejected.reason, str(rejected))
        except JournalCorrupt as corrupt:
            return _refused(answer, Rejection.CORRUPT, str(corrupt))
        return answer.model_copy(update={"state": OrderState.FINISHED, "rows": rows})

    async def acknowledge(self, name: str) -> GroupAnswer:
        """Note that a trainer has the group's rows. Raises InvalidInput for a group that isn't finished."""
        claim = self._claim(name)
        if await self._groups.scored(claim) is None:
            raise InvalidInput(f"{name} is not finished")
        await self._ledger.acknowledge(claim.group)
        return await self.answer(name, Fetch())

    async def cancel(self, name: str) -> GroupAnswer:
        """End the group without rows, unless they were acknowledged."""
        claim = self._claim(name)
        # the ledger keeps the first entry: a group that was acknowledged stays so
        await self._refuse(claim, GroupRejected(Rejection.CANCELLED, f"{name} was cancelled"))
        if (task := self._awaited.pop(claim.group, None)) is not None:
            task.cancel()
        self._delays.pop(claim.group, None)
        if await self._groups.scored(claim) is None:
            await self._groups.cancel(claim)
        return await self.answer(name, Fetch())

    async def undelivered(self) -> tuple[str, ...]:
        """Names of the groups that are neither acknowledged nor refused, in the order of ordering."""
        pending = await self._ledger.undelivered(list(self._names.values()))
        return tuple(name_of(claim.group) for claim in pending)

    async def close(self) -> None:
        """Stop waiting. The groups go on."""
        for task in self._awaited.values():
            task.cancel()
        await asyncio.gather(*self._awaited.values(), return_exceptions=True)

    def _keep(self, claim: Claim) -> None:
        self._names.setdefault(name_of(claim.group), claim)
        self._next = max(self._next, claim.number + 1)

    def _claim(self, name: str) -> Claim:
        if (claim := self._names.get(name)) is None:
            raise NotOrdered(f"{self._run} has no group of the name {name[:80]!r}")
        return claim

    async def _scored(self, claim: Claim, seconds: float) -> GroupEntry | None:
        """The group's entry, if it is there within `seconds`. Raises GroupRejected once it is given up."""
        if (entry := await self._groups.scored(claim)) is not None:
            return entry
        if (task := self._awaited.get(claim.group)) is None:
            self._awaited[claim.group] = task = asyncio.create_task(
                self._groups.until_scored(claim, lambda delay: self._delays.update({claim.group: delay}))
            )
        # not wait_for: the task waits on for the next request
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            return None
        self._awaited.pop(claim.group, None)
        self._delays.pop(claim.group, None)
        return None if task.cancelled() else task.result()

    async def _rows(self, claim: Claim, entry: GroupEntry, how: Fetch) -> tuple[TrainingRow, ...]:
        siblings = await read_siblings(self._journal, entry)
        exclusion = Exclusion(frozenset(how.exclude))
        group = await asyncio.to_thread(training_group, claim.group, entry, siblings, exclusion=exclusion)
        check_staleness(group, how.step or 0, how.max_lag)
        return group.rows

    async def _refuse(self, claim: Claim, rejected: GroupRejected) -> None:
        await self._ledger.drop(claim.group, rejected.reason, str(rejected))


def _refused(answer: GroupAnswer, reason: str, detail: str) -> GroupAnswer:
    return answer.model_copy(update={"state": OrderState.REFUSED, "reason": reason, "detail": detail})


def name_of(group: str) -> str:
    """The name that a group was ordered by."""
    return group.partition("/i-")[2].rpartition(".")[0]
