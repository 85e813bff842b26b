"""Runs and rollouts that spend their budgets."""

import pytest

from clotho.errors import InvalidInput
from clotho.rollouts.outcome import Outcome
from clotho.run_settings import RunSettings
from clotho.runs.budgets import RunLedger
from clotho.runs.operations import Operations
from clotho.runs.pauses import reason_for
from clotho.runs.rollouts import read_end
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.scripts import run, say

PRICES = {"scripted": {"prompt": 1.0, "sampled": 10.0}}


@pytest.mark.parametrize(
    ("name", "budget", "limit"),
    [("calls", {"calls": {"terminal": 2}}, "budget.calls.terminal"), ("cost", {"cost": 1e-4}, "budget.cost")],
)
async def test_a_rollout_that_meets_its_budget_is_scored(
    cluster: Cluster, name: str, budget: dict[str, object], limit: str
) -> None:
    script = Script(conversations=(Conversation(variants=((run("echo -n 0.5 > /work/score"),),)),))
    settings = RunSettings(rollout_budget=budget, prices=PRICES)
    async with serving(ScriptedModel(script)) as url:
        await (await start(cluster, f"budget-{name}", url, settings=settings)).result()
    end = await read_end(cluster.open_journal(), f"budget-{name}/g000000/r0")
    assert end is not None
    assert (end.summary.ending.outcome, end.summary.ending.limit) == (Outcome.LIMIT_REACHED, limit)
    assert end.summary.score == 0.5


@pytest.mark.slow
async def test_a_run_that_meets_its_budget_pauses_and_goes_on_with_a_larger_one(
    private_cluster: Cluster,
) -> None:
    """Its worker is killed while it is paused: what was paid before counts, and is not paid again."""
    cluster, target = private_cluster, Target.named("spender")
    turns = (*(run("true"),) * 9, say("Done."))
    model = ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),), latency=1.0))
    settings = RunSettings(budget={"calls": {"terminal": 2}}, prices=PRICES)
    journal = cluster.open_journal()
    operations = Operations(journal, cluster.client)
    async with serving(model) as url:
        worker = await cluster.start_worker()
        handle = await start(
            cluster, "spender", url, group_size=2, settings=settings, overrides={"max_agent_turns": 30}
        )
        reason = await eventually(lambda: reason_for(journal, "spender"), "the budget to be met")
        assert "calls of terminal" in reason
        with pytest.raises(InvalidInput, match="its budget is used up"):
            await operations.resume(target)

        async def stopped() -> bool:
            return (await operations.boundaries(target)).paused == 2

        await eventually(stopped, "both rollouts to stop")
        await worker.kill()
        before = model.calls.completed.total()
        assert (await RunLedger(journal, "spender").spending()).turns == before < 20
        await cluster.start_worker()
        await operations.change_budget(target, RunSettings(budget={"calls": {"terminal": 100}}))
        await operations.resume(target)
        await handle.result()
    spent = await RunLedger(journal, "spender").spending()
    assert (spent.turns, spent.calls) == (20, {"terminal": 18})
    assert model.calls.completed.total() == 20
    assert set(model.calls.requests.values()) == {1}
