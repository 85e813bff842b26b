"""Budgets, prices, and the count of what a run has spent."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from clotho.errors import InvalidInput
from clotho.identifiers.keys import call_key, items_key, scored_key, spending_prefix, tools_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import SampledTurn, Usage
from clotho.models.endpoint import Endpoint
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.rollouts.budget import Budget, BudgetEntry, Price, RunBudget, Spending, SpendingPage
from clotho.rollouts.call import CallEntry, CallResult
from clotho.rollouts.group import GroupEntry, OfferedTool, ToolManifest
from clotho.rollouts.item import ItemChunk
from clotho.rollouts.outcome import Limits
from clotho.rollouts.rollout import RolloutState, Totals
from clotho.rollouts.run import RunManifest
from clotho.rollouts.turn import TurnEntry, TurnResult
from clotho.run_settings import RunSettings
from clotho.runs.budgets import RunLedger, budget_text, read_budget, rollout_spending, with_spending
from clotho.runs.manifest import open_run
from clotho.runs.request import run_manifest

PRICE = Price(prompt=2.0, cached_prompt=0.5, sampled=10.0)
PRICES = {"model": PRICE.model_dump()}
ENDPOINT = Endpoint(base_url="http://127.0.0.1:1/v1")
GROUP = "run/g000000"
TERMINAL = OfferedTool(name="terminal", toolset="terminal", sandboxed=True, tool_schema={})


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path))


def turn(prompt: int = 100, sampled: int = 10, *tools: str) -> TurnEntry:
    calls = tuple(
        ToolCall(id=str(index), function=FunctionCall(name=name, arguments="{}"))
        for index, name in enumerate(tools)
    )
    return TurnEntry(
        sampled=SampledTurn(
            message=ChatMessage(role="assistant", content="", tool_calls=calls),
            finish_reason="stop",
            usage=Usage(prompt_tokens=prompt, completion_tokens=sampled, cached_prompt_tokens=prompt // 2),
            model="model",
            sampling=Sampling(),
            started=1_000.0,
            seconds=2.0,
        )
    )


def called(tool: str) -> CallEntry:
    fields: dict[str, object] = {"error": None, "state": {}, "lease": 0, "started": 0.0, "changes": True}
    return CallEntry.model_validate({"tool": tool, "content": "", "seconds": 3.0, **fields})


def asked(**settings: object) -> RunManifest:
    return run_manifest("file_tasks", "run", "model", settings=RunSettings.model_validate(settings))


def test_cached_tokens_have_a_price_of_their_own() -> None:
    assert PRICE.cost(1_000_000, 400_000, 100_000) == pytest.approx(1.2 + 0.2 + 1.0)
    assert Price(prompt=2, sampled=10).cost(1_000_000, 400_000, 0) == pytest.approx(2.0)
    with pytest.raises(ValidationError):
        Price(prompt=float("nan"), sampled=1)


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(prompt_tokens=250), "budget.prompt_tokens"),
        (Budget(cost=0.02), "budget.cost"),
        (Budget(calls={"terminal": 2}), "budget.calls.terminal"),
        (Budget(calls={"web_search": 1}, sampled_tokens=26), None),
    ],
)
def test_a_rollout_ends_when_it_has_spent_its_budget_or_its_children_have(
    budget: Budget, limit: str | None
) -> None:
    state, limits = RolloutState(), Limits(rollout_budget=budget)
    sampled = TurnResult(
        tool_calls=(),
        context_overflow=False,
        truncated=False,
        prompt_tokens=100,
        sampled_tokens=10,
        seconds=1,
        cost=0.01,
    )
    assert state.after_turn(sampled).limit_met(limits) is None
    call = CallResult.model_validate(
        {
            "failed": False,
            "seconds": 1.0,
            "budgeted": "terminal",
            "delegated": {
                "sampled_tokens": 5,
                "active_seconds": 0,
                "prompt_tokens": 50,
                "calls": {"terminal": 1},
            },
        }
    )
    state = state.after_turn(sampled).after_call("0000-00", call).after_turn(sampled)
    assert state.limit_met(limits) == limit


def test_a_child_has_what_is_left_of_the_budget() -> None:
    budget = Budget(prompt_tokens=100, cost=1.0, calls={"terminal": 3, "patch": 1})
    state = RolloutState(
        totals=Totals(prompt_tokens=60, cost=0.75, budgeted_calls={"terminal": 1, "patch": 4})
    )
    left = state.limits_of_child(Limits(rollout_budget=budget), turns=1).rollout_budget
    assert left == Budget(prompt_tokens=40, cost=0.25, calls={"terminal": 2, "patch": 1})


def test_histories_of_runs_without_budgets_are_as_they_were() -> None:
    assert "budget" not in Limits().model_dump_json()
    assert Totals.model_fields.keys() - Totals().model_dump().keys() == {
        "delegated_tokens",
        "delegated_prompt_tokens",
        "cost",
        "budgeted_calls",
    }


async def test_a_budget_of_cost_needs_a_price(journal: Journal, tmp_path: Path) -> None:
    for settings in ({"budget": {"cost": 1}}, {"rollout_budget": {"cost": 1}}):
        for prices in ({}, {"prices": {"other": {"prompt": 1, "sampled": 1}}}):
            with pytest.raises(InvalidInput, match="needs the price of model, which isn't known"):
                await open_run(journal, asked(**settings, **prices), ENDPOINT)
    assert await journal.keys("~runs/") == []
    file = tmp_path / "prices.yaml"
    file.write_text("model: {prompt: 2, cached_prompt: 0.5, sampled: 10}\n")
    await open_run(journal, asked(budget={"cost": 1}, prices=str(file)), ENDPOINT)
    assert await read_budget(journal, "run") == BudgetEntry(budget=RunBudget(cost=1), price=PRICE)


async def test_a_budget_may_change_and_is_kept_by_a_resume_that_names_none(journal: Journal) -> None:
    await open_run(journal, asked(budget='{"sampled_tokens": 5}'), ENDPOINT)
    await journal.write(items_key("run", 0), ItemChunk(items=({},)))
    for budget, kept in ((None, 5), ({"sampled_tokens": 9}, 9), (None, 9), ({}, None)):
        await open_run(journal, asked(**({} if budget is None else {"budget": budget})), ENDPOINT)
        entry = await read_budget(journal, "run")
        assert entry is not None
        assert entry.budget.sampled_tokens == kept


@pytest.mark.parametrize("budget", [{"tokens": 5}, {"cost": -1}, {"calls": {"terminal": 0}}])
def test_a_budget_that_is_none_is_refused(budget: object) -> None:
    with pytest.raises(InvalidInput):
        asked(budget=budget)
    with pytest.raises(InvalidInput, match="wall_seconds"):
        asked(rollout_budget={"wall_seconds": 60})


async def write_rollout(journal: Journal, rollout: str, turns: int) -> None:
    """A rollout of `turns` turns, each with a call of the terminal and one of a tool that isn't offered."""
    offered = ToolManifest(toolsets=("terminal",), tools=(TERMINAL,), unavailable={})
    await journal.write(tools_key(rollout.rpartition("/")[0]), offered)
    for number in range(turns):
        await journal.write(turn_key(rollout, number), turn(100, 10, "terminal", "invented"))
        await journal.write(call_key(rollout, f"{number:04}-00"), called("terminal"))
        await journal.write(call_key(rollout, f"{number:04}-01"), called("invented"))


async def test_spending_is_read_from_the_journal_loose_or_sealed(journal: Journal) -> None:
    await write_rollout(journal, f"{GROUP}/r0", 40)
    expected = Spending(
        turns=40,
        prompt_tokens=4_000,
        cached_prompt_tokens=2_000,
        sampled_tokens=400,
        active_seconds=40 * 8.0,
        calls={"terminal": 40},
        began=1_000.0,
    )
    assert await rollout_spending(journal, f"{GROUP}/r0") == expected
    await journal.seal(f"{GROUP}/r0")
    assert await rollout_spending(journal, f"{GROUP}/r0") == expected
    assert (await rollout_spending(journal, f"{GROUP}/r0", 33)).turns == 33


async def test_every_answer_counts_once_whatever_is_repaired_replaced_or_restarted(journal: Journal) -> None:
    await journal.write(items_key("run", 0), ItemChunk(items=({}, {})))
    await open_run(journal, asked(budget={"sampled_tokens": 100}, prices=PRICES), ENDPOINT)
    for name, turns in (("r0", 3), ("r1", 2), ("r1.1", 1), ("r0~0001-00", 1)):
        await write_rollout(journal, f"{GROUP}/{name}", turns)

    async def page(process: str, **turns: int) -> None:
        spent = {f"{GROUP}/{name}": Spending(turns=n, sampled_tokens=10 * n) for name, n in turns.items()}
        await journal.append(f"{spending_prefix('run')}{process}/", SpendingPage(rollouts=spent), kept=1)

    running = RunLedger(journal, "run")
    assert (await running.spending()).turns == 0
    await page("a", r0=1, r1=2)
    await page("b", r0=3)  # it moved there
    assert (await running.spending()).turns == 5
    await page("a", r0=1, r1=1)  # sampled again from the journal, after a repair
    assert (await running.spending()).sampled_tokens == 50
    assert (await RunLedger(journal, "run").spending()).turns == 7, "the journal has what no page says"
    own = {f"{GROUP}/r1.1": Spending(turns=1, sampled_tokens=10)}
    assert (await running.spending(own)).sampled_tokens == 60
    scored = await with_spending(journal, GROUP, GroupEntry(item={}, toolsets=(), siblings=()))
    await journal.write(scored_key(GROUP), scored)
    for ledger in (running, RunLedger(journal, "run")):
        for _ in range(2):
            assert (await ledger.spending(own)).turns == 7
    assert (text := await budget_text(journal, "run")) is not None
    assert "700 prompt tokens (350 cached) · 70 sampled tokens · $0.001575" in text
    assert text.endswith("budget: 70 of 100 sampled tokens")


def test_the_reason_says_what_is_used_up() -> None:
    entry = BudgetEntry(budget=RunBudget(cost=1.5, wall_seconds=60), price=PRICE)
    assert entry.met(Spending(sampled_tokens=149_999, began=0), 59) is None
    assert entry.met(Spending(sampled_tokens=150_000, began=0), 59) == "its budget is used up: $1.5 of $1.5"
    assert entry.met(Spending(began=0), 61) == "its budget is used up: 61 of 60 wall seconds"
