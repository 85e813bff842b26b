"""The budget of a run: what it may spend, in a numbered log, and what its journal says that it has spent."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from clotho.identifiers.ids import call_id, group_of, run_of
from clotho.identifiers.keys import budget_prefix, call_key, spending_prefix, tools_key, turn_key
from clotho.journal import Journal
from clotho.rollouts.budget import (
    BudgetEntry,
    RunBudget,
    Spending,
    SpendingPage,
    bound_text,
    required_price,
    total,
)
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import GroupEntry, ToolManifest
from clotho.rollouts.run import RunManifest
from clotho.rollouts.turn import TurnEntry
from clotho.runs.groups import group_ids, scored_among

TURNS_PER_READ = 32


async def read_budget(journal: Journal, run: str) -> BudgetEntry | None:
    return await journal.latest(budget_prefix(run), BudgetEntry)


async def budget_asked(journal: Journal, manifest: RunManifest, *, acts: bool) -> BudgetEntry | None:
    """The run's budget and price, with those that `manifest` names in their place; None if nothing changes.

    `acts`: whether a model acts. Raises InvalidInput for a budget of cost without the model's price.
    """
    account, begun = manifest.account, await read_budget(journal, manifest.run)
    before = begun or BudgetEntry()
    budget = before.budget if account.budget is None else account.budget
    price = before.price if account.prices is None else account.prices.get(manifest.model)
    of_rollouts = manifest.limits.rollout_budget
    costs = budget.cost is not None or (of_rollouts is not None and of_rollouts.cost is not None)
    if costs and price is None and acts:
        price = required_price(account.prices, manifest.model)
    entry = BudgetEntry(budget=budget, price=price)
    return None if entry == before else entry


async def set_budget(journal: Journal, run: str, entry: BudgetEntry | None) -> None:
    """Make `entry` the current budget; None changes nothing."""
    if entry is not None:
        await journal.append(budget_prefix(run), entry)


async def rollout_spending(journal: Journal, rollout: str, turns: int | None = None) -> Spending:
    """The spending of one rollout, by its journal: of its first `turns` turns, or of all."""
    tools = await journal.read(tools_key(group_of(rollout)), ToolManifest)
    spent, first = Spending(), 0
    while turns is None or first < turns:
        last = first + TURNS_PER_READ if turns is None else min(turns, first + TURNS_PER_READ)
        entries = await journal.read_many([turn_key(rollout, turn) for turn in range(first, last)], TurnEntry)
        # to the first gap: what a program has sampled behind it counts once the gap is filled
        for number, entry in enumerate(entries, first):
            if entry is None:
                return spent
            spent += await turn_spending(journal, rollout, number, entry, tools)
        first = last
    return spent


async def turn_spending(
    journal: Journal, rollout: str, number: int, turn: TurnEntry, tools: ToolManifest | None
) -> Spending:
    """The spending of a turn, and of its calls that are made. Names of tools that aren't offered don't count."""
    return sampled_spending(turn) + await calls_spending(journal, rollout, number, turn, tools)


def sampled_spending(turn: TurnEntry) -> Spending:
    if (sampled := turn.sampled) is None:
        return Spending(turns=1)
    usage = sampled.usage
    return Spending(
        turns=1,
        prompt_tokens=usage.prompt_tokens,
        cached_prompt_tokens=usage.cached_prompt_tokens,
        sampled_tokens=usage.completion_tokens,
        uncounted_turns=int(not usage.prompt_tokens and not usage.completion_tokens),
        active_seconds=sampled.seconds,
        began=sampled.started,
    )


async def calls_spending(
    journal: Journal, rollout: str, number: int, turn: TurnEntry, tools: ToolManifest | None
) -> Spending:
    """The spending of a turn's calls that have a result by now."""
    keys = [call_key(rollout, call_id(number, index)) for index in range(len(turn.tool_calls))]
    made = [call for call in await journal.read_many(keys, CallEntry) if call is not None]
    # names that a model invents would fill the pages of spending
    offered = [call for call in made if tools is not None and tools.offered(call.tool) is not None]
    counts = {name: sum(call.tool == name for call in offered) for name in {call.tool for call in offered}}
    return Spending(active_seconds=sum(call.seconds for call in made), calls=counts)


async def group_spending(journal: Journal, group: str) -> Spending:
    """The spending of all rollouts of a group, by its journal."""
    rollouts = await rollouts_of(journal, group)
    return total([await rollout_spending(journal, rollout) for rollout in rollouts])


async def rollouts_of(journal: Journal, group: str) -> list[str]:
    """All rollouts that have begun in a group: siblings, replaced ones and children."""
    below = {key.removeprefix(f"{group}/").partition("/")[0] for key in await journal.keys(f"{group}/")}
    return [f"{group}/{name}" for name in sorted(below) if name[0] == "r" and name[1:2].isdigit()]


class RunLedger:
    """Counts what a run has spent, again and again.

    Scored groups are counted from their entries, once. The others are counted from the journal at first, then
    from the pages that model processes write after their turns; each page has whole rollouts, so that the one with
    the most turns counts for a rollout that several processes have sampled.
    """

    def __init__(self, journal: Journal, run: str) -> None:
        self._journal = journal
        self._run = run
        self._scored = Spending()
        self._counted: set[str] = set()
        self._open: dict[str, Spending] = {}
        self._begun = False

    async def spending(self, own: Mapping[str, Spending] | None = None) -> Spending:
        """All that is spent; `own` are rollouts whose page isn't written yet."""
        if not self._begun:
            await self._count(await group_ids(self._journal, self._run))
        pages = [own or {}, *(page.rollouts for page in await self._pages())]
        if not self._begun:
            # From the journal: pages may lack what a killed process had just sampled.
            for group in {group_of(each) for page in pages for each in page} - self._counted:
                for rollout in await rollouts_of(self._journal, group):
                    self._open[rollout] = await rollout_spending(self._journal, rollout)
            self._begun = True
        for rollout, spent in (each for page in pages for each in page.items()):
            if group_of(rollout) in self._counted:
                continue
            # as many turns may come with more calls
            if (known := self._open.get(rollout)) is None or spent.turns >= known.turns:
                self._open[rollout] = spent
        await self._count(sorted({group_of(rollout) for rollout in self._open}))
        return self._scored + total(self._open.values())

    def is_counted(self, group: str) -> bool:
        """Whether the group is scored, and its entry counted."""
        return group in self._counted

    async def _pages(self) -> list[SpendingPage]:
        keys = sorted(await self._journal.keys(spending_prefix(self._run)))
        last = {key.rpartition("/")[0]: key for key in keys}
        # from the store: a page is soon replaced, and is None where its process has just written the next
        read = await asyncio.gather(*(self._journal.read_current(key, SpendingPage) for key in last.values()))
        return [page for page in read if page is not None]

    async def _count(self, groups: Sequence[str]) -> None:
        left = [group for group in groups if group not in self._counted]
        async for group, entry in scored_among(self._journal, left):
            spent = entry.spent or await group_spending(self._journal, group)
            self._scored += spent
            self._counted.add(group)
            # its entry has them: counted on, they would be spent twice
            for rollout in [each for each in self._open if group_of(each) == group]:
                del self._open[rollout]


async def budget_used_up(journal: Journal, run: str) -> str | None:
    """The reason for which the run's budget would pause it now; None if it wouldn't."""
    entry = await read_budget(journal, run)
    if entry is None or entry.budget == RunBudget():
        return None
    return entry.met(await RunLedger(journal, run).spending(), time.time())


async def with_spending(journal: Journal, group: str, entry: GroupEntry) -> GroupEntry:
    """The entry of a group that is being scored, with its spending where the run has a budget."""
    # without a budget nobody asks: to add it up reads every turn and call of the group
    if await read_budget(journal, run_of(group)) is None:
        return entry
    return entry.model_copy(update={"spent": await group_spending(journal, group)})


async def budget_text(journal: Journal, run: str, ledger: RunLedger | None = None) -> str | None:
    """A sentence: what a run has spent, and its budget. None for a run without budget and prices."""
    if (entry := await read_budget(journal, run)) is None:
        return None
    spending = await (ledger or RunLedger(journal, run)).spending()
    cost = spending.cost(entry.price)
    parts = [
        f"{spending.prompt_tokens:,} prompt tokens ({spending.cached_prompt_tokens:,} cached)",
        f"{spending.sampled_tokens:,} sampled tokens",
        f"${cost:,.4g}" if cost is not None else "at a price that isn't known",
        f"{spending.active_seconds:,.0f} s of calls",
    ]
    if spending.uncounted_turns:
        parts.append(f"and {spending.uncounted_turns:,} turns whose tokens the server didn't report")
    spent = entry.spent(spending, time.time())
    bounds = [bound_text(name, spent.get(name, 0), bound) for name, bound in entry.budget.bounds()]
    return f"spent: {' · '.join(parts)}; budget: {' · '.join(bounds) or 'none'}"
