"""`clotho run --dry-run`: what a run would do, and its tokens, time and cost estimated from a few rollouts."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from temporalio.client import WorkflowFailureError

from clotho.cli.follow import run_failure
from clotho.cli.run_facts import settings_text
from clotho.cli.terminal import amount, one_line
from clotho.cli.try_rollout import NO_REPAIRS, first_items, say_troubles
from clotho.cli.waiting import until_served
from clotho.config import Settings
from clotho.embedded.services import EphemeralServices, ephemeral_services
from clotho.errors import InvalidInput
from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import end_key, manifest_key
from clotho.journal import Journal
from clotho.journal.open_store import open_existing
from clotho.models.listed_models import only_model
from clotho.rollouts.budget import Account, Price
from clotho.rollouts.item import Item
from clotho.rollouts.rollout import EndEntry, RolloutSummary
from clotho.rollouts.run import RunManifest
from clotho.runs.campaigns import start_campaign
from clotho.runs.groups import scored_groups
from clotho.runs.manifest import has_begun, require_unchanged
from clotho.runs.request import RunRequest

TRIED = 3
"""Rollouts that are tried, of the first items."""
RUN = "dry-run"


@dataclass(frozen=True)
class DryRun:
    """One `clotho run --dry-run`: nothing is written to the store, and nothing is started in its Temporal."""

    settings: Settings
    console: Console
    order: RunRequest

    async def show(self) -> None:
        """Print what would run, and what it is likely to take. Raises RunFailed if no rollout ends."""
        order, manifest = self.order, self.order.manifest
        summaries = await self._read_scored()
        items = (order.items or await first_items(manifest, order.groups))[: order.groups]
        whole = len(items) * manifest.group_size
        left = max(0, whole - len(summaries))
        one_line(
            self.console,
            f"run {manifest.run}: {amount(len(items), 'item')} × {manifest.group_size} = "
            f"{amount(whole, 'rollout')}, {left} of which are left to do",
        )
        if len(items) < order.groups:
            one_line(self.console, f"there are only {len(items)} items, not {order.groups}")
        one_line(self.console, settings_text(manifest, everything=True) or "")
        if not left:
            return
        source = f"{amount(len(summaries), 'rollout')} that the run has"
        if not summaries:
            summaries = await self._try_items(items[:TRIED])
            source = f"{amount(len(summaries), 'rollout')} of its first items, made now and not kept"
        at_once = min(left, order.max_open_groups * manifest.group_size)
        price = await self._price()
        self.console.print(estimate_table(summaries, left, at_once, source, price))
        if price is None and order.endpoint is not None:
            one_line(
                self.console, "its cost isn't estimated: --prices doesn't tell what the model's tokens cost"
            )

    async def _read_scored(self) -> list[RolloutSummary]:
        """The run's scored rollouts. Raises InvalidInput for a run that has begun with other settings."""
        manifest = self.order.manifest
        try:
            store = await asyncio.to_thread(open_existing, self.settings.store, self.settings)
        except InvalidInput:  # no run has begun there
            return []
        journal = Journal(store)
        # not kept in memory: until the run has items, its manifest may be replaced
        stored = await journal.read_current(manifest_key(manifest.run), RunManifest)
        if stored is None or not await has_begun(journal, manifest.run):
            return []
        require_unchanged(manifest if manifest.model else manifest.named(stored.model), stored)
        groups = await scored_groups(journal, manifest.run)
        return [summary for _, entry in groups for summary in entry.siblings]

    async def _price(self) -> Price | None:
        """The price of the run's model, if it is known."""
        prices, endpoint = self.order.manifest.account.prices, self.order.endpoint
        if not prices or endpoint is None:
            return None
        return prices.get(self.order.manifest.model or await only_model(endpoint))

    async def _try_items(self, items: tuple[Item, ...]) -> list[RolloutSummary]:
        """Roll items out once each, in services of their own."""
        endpoint = self.order.endpoint
        # without the run's budget, which would pause the trial
        alone = {"run": RUN, "group_size": 1, "account": Account()}
        manifest = self.order.manifest.model_copy(update=alone)
        if endpoint is not None and not manifest.model:
            manifest = manifest.named(await only_model(endpoint))
        order = RunRequest(
            manifest=manifest,
            endpoint=endpoint,
            groups=len(items),
            max_open_groups=len(items),
            items=items,
            repairs=NO_REPAIRS,
        )
        async with ephemeral_services(self.settings, with_model=False) as services:
            return await services.during(self._roll_out(services, order))

    async def _roll_out(self, services: EphemeralServices, order: RunRequest) -> list[RolloutSummary]:
        await until_served(services.client, services.worker)
        handle = await start_campaign(services.client, services.journal, order)
        troubles = asyncio.create_task(say_troubles(self.console, services.client, RUN))
        failed: WorkflowFailureError | None = None
        try:
            await handle.result()
        except WorkflowFailureError as error:
            failed = error
        finally:
            troubles.cancel()
        keys = [end_key(rollout_id(group_id(RUN, item), 0)) for item in range(order.groups)]
        ends = [end.summary for end in await services.journal.read_many(keys, EndEntry) if end is not None]
        # some ends are enough for an estimate, whatever the others failed with
        if failed is not None and not ends:
            raise run_failure(RUN, failed)
        return ends


def estimate_table(
    summaries: Sequence[RolloutSummary], left: int, at_once: int, source: str, price: Price | None
) -> Table:
    """The figures of some rollouts, and what `left` like them add up to."""
    figures = {
        "turns": [float(each.turns) for each in summaries],
        "tool calls": [float(each.tool_calls) for each in summaries],
        "prompt tokens": [float(each.prompt_tokens) for each in summaries],
        "sampled tokens": [float(each.sampled_tokens + each.delegated_tokens) for each in summaries],
        "seconds of model and tools": [each.active_seconds for each in summaries],
    }
    table = Table("", "least", "mean", "most", amount(left, "rollout"), title=f"estimated from {source}")
    for name, values in figures.items():
        mean = sum(values) / len(values)
        shown = (min(values), mean, max(values), mean * left)
        table.add_row(name, *(f"{value:,.1f}".removesuffix(".0") for value in shown))
    if price is not None:
        # as if nothing were cached: summaries don't tell cached tokens
        costs = [
            price.cost(each.prompt_tokens, 0, each.sampled_tokens + each.delegated_tokens)
            for each in summaries
        ]
        mean = sum(costs) / len(costs)
        shown = (min(costs), mean, max(costs), mean * left)
        table.add_row("US dollars, without a cache", *(f"{cost:,.4f}" for cost in shown))
    seconds = sum(figures["seconds of model and tools"]) / len(summaries) * left / at_once
    table.caption = f"{at_once} at once would take {seconds / 60:,.1f} min, if the model keeps its pace"
    return table
