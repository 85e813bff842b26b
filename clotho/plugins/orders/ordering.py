"""All runs of a store whose groups are ordered by name, and the claims of callers without names of their own."""

import asyncio

from clotho_client.orders import ClaimOrder, GroupAnswer, GroupOrder, OrderState
from temporalio.client import Client

from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import RUN_NAME, job_key
from clotho.identifiers.keys import claims_prefix, manifest_key
from clotho.journal import Journal
from clotho.plugins.orders.ordered_run import NotOrdered, OrderedRun
from clotho.plugins.orders.run_order import CheckedRunOrder
from clotho.rollouts.run import AdapterRunConfig, RunManifest
from clotho.rollouts.task_queues import TaskQueues
from clotho.run_settings import RunSettings
from clotho.runs.adapter_runs import open_adapter_run, read_adapter_config
from clotho.runs.group_workflows import Groups
from clotho.runs.trainer_steps import note_step

ATTEMPTS = 3
"""Attempts at a group that fails for reasons of its own."""
DEFAULT_QUEUES = TaskQueues()


class Claimed(FrozenModel):
    """A claim took the group whose number the entry has."""

    claim: str


class Claims:
    """Claims on one sequence of a run's groups, which are numbered anew in each life of its caller."""

    def __init__(self, journal: Journal, run: str, order: ClaimOrder) -> None:
        self._journal = journal
        self._sequence = job_key(order.key)
        self._prefix = claims_prefix(run, job_key(order.key, order.life))

    async def group_of(self, claim: str) -> str | None:
        """The name of the group that `claim` took, the last of several; None if it took none."""
        keys = sorted(await self._journal.keys(self._prefix), reverse=True)
        entries = await self._journal.read_many(keys, Claimed)
        found = (key for key, entry in zip(keys, entries, strict=True) if entry and entry.claim == claim)
        return next((self._name(int(key.rpartition("/")[2])) for key in found), None)

    async def take(self, claim: str) -> str:
        """The name of the next group of the sequence that nobody took in this life."""
        return self._name(await self._journal.append(self._prefix, Claimed(claim=claim)))

    def _name(self, number: int) -> str:
        return f"{self._sequence}-{number}"


class Orders:
    """Opens runs, and orders groups of them. All of it is in the store: another process goes on with it."""

    def __init__(
        self,
        client: Client,
        journal: Journal,
        defaults: RunSettings,
        task_queues: TaskQueues = DEFAULT_QUEUES,
    ) -> None:
        self._client = client
        self._journal = journal
        self._defaults = defaults
        """Settings of runs that don't name them."""
        self._task_queues = task_queues
        self._runs: dict[str, OrderedRun] = {}
        self._opening = asyncio.Lock()

    async def open_run(self, run: str, order: CheckedRunOrder) -> None:
        """Open the run, or check that it is the same. Raises InvalidInput with the fields that differ."""
        manifest = await asyncio.to_thread(order.manifest, run, self._defaults)
        async with self._opening:
            opened = self._runs.get(run)
            config = AdapterRunConfig(task_queues=self._task_queues)
            await open_adapter_run(self._journal, manifest, order.endpoint, config)
            if opened is not None and not opened.begun:
                del self._runs[run]  # its manifest may be another one now

    async def order(self, run: str, name: str, order: GroupOrder) -> GroupAnswer:
        """Start the group, unless it was ordered. Raises InvalidInput if the name stands for another item."""
        opened = await self.run(run)
        if order.step is not None:
            await note_step(self._journal, run, order.step)
        return await opened.order(name, order.item, order.step)

    async def claim(self, run: str, claim: str, order: ClaimOrder) -> GroupAnswer:
        """Order the next group of the order's sequence that isn't refused, unless `claim` did."""
        # an unknown run is refused before a claim is written
        await self.run(run)
        claims = Claims(self._journal, run, order)
        if (name := await claims.group_of(claim)) is not None:
            return await self.order(run, name, order)
        while True:
            answer = await self.order(run, await claims.take(claim), order)
            if answer.state is not OrderState.REFUSED:
                return answer

    async def run(self, run: str) -> OrderedRun:
        """The orders of a run. Raises NotOrdered for one that wasn't opened here."""
        async with self._opening:
            if (opened := self._runs.get(run)) is None:
                self._runs[run] = opened = await self._opened(run)
        return opened

    async def close(self) -> None:
        """Stop waiting. The groups go on."""
        await asyncio.gather(*(opened.close() for opened in self._runs.values()))

    async def _opened(self, run: str) -> OrderedRun:
        known = RUN_NAME.fullmatch(run) is not None
        manifest = await self._journal.read_current(manifest_key(run), RunManifest) if known else None
        config = await read_adapter_config(self._journal, run) if manifest is not None else None
        if manifest is None or config is None:
            raise NotOrdered(f"there is no run {run[:80]!r} whose groups are ordered: PUT it first")
        groups = Groups(self._client, self._journal, manifest, config, ATTEMPTS)
        opened = OrderedRun(self._journal, run, groups)
        await opened.load()
        return opened
