"""Operating runs whose items are drawn one at a time: their groups bear the names of their items."""

import asyncio
from pathlib import Path

import pytest

from clotho.atropos.ledger import Claim, Ledger
from clotho.atropos.rollouts import Groups
from clotho.campaigns import run_manifest
from clotho.drawn_runs import open_drawn_run
from clotho.entries import DrawnOrder, Endpoint, Item
from clotho.errors import InvalidInput, Unfit
from clotho.inference.base import Inference, ServedModel
from clotho.operations import Boundaries, Operations, Target
from clotho.runs import note_served
from clotho.testing.cluster import FAST, Cluster
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho_many
from tests.support import ONE_FILE, eventually
from tests.workflows.scripts import run, say

TURNS = (run("true"),) * 4
SLOW = Script(conversations=(Conversation(variants=((*TURNS, say("Done.")),)),), latency=0.3)
ITEMS: tuple[Item, ...] = ({"id": "a", "number": 0}, {"number": 1})
HASHED = "h-" + "0" * 32


async def opened(cluster: Cluster, name: str, url: str) -> tuple[Groups, list[Claim]]:
    """The run as the adapter opens it, and the claims of two items."""
    journal, order = cluster.open_journal(), DrawnOrder(stations=FAST)
    manifest = run_manifest(ONE_FILE, name, "scripted", group_size=2)
    await open_drawn_run(journal, manifest, Endpoint(base_url=url), order)
    ledger = Ledger(journal, name)
    claims = [await ledger.claim(item, 0) for item in ITEMS]
    groups = Groups(cluster.client, journal, manifest, order, attempts=1)
    return groups, claims


async def stopped(cluster: Cluster, name: str, rollouts: int) -> None:
    operate = Operations(cluster.open_journal(), cluster.client)

    async def all_have() -> bool:
        return await operate.boundaries(Target.named(name)) == Boundaries(rollouts, rollouts)

    await eventually(all_have, f"{rollouts} rollouts of {name} at a boundary")


@pytest.mark.parametrize("name", ["run/i-a.0", "run/i-_-9.12/r1", f"run/{HASHED}.0", f"run/{HASHED}.3/r0.2"])
def test_drawn_groups_and_their_rollouts_are_named(name: str) -> None:
    target = Target.named(name)
    assert (str(target), target.item) == (name, None)
    assert target.group == "/".join(name.split("/")[:2])


@pytest.mark.parametrize("name", ["run/i-a", "run/i-.0", "run/a.0", "run/h-12.0", "run/i-a.0/x", "run/i-ü.0"])
def test_what_names_no_drawn_group_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="names nothing"):
        Target.named(name)


async def test_a_run_that_an_adapter_draws_is_operated_by_the_command(
    cluster: Cluster, tmp_path: Path
) -> None:
    name, where = "drawn-operated", ("--store", str(cluster.store), "--temporal", cluster.address)
    async with serving(ScriptedModel(SLOW)) as url:
        groups, claims = await opened(cluster, name, url)
        first, second = (claim.group for claim in claims)
        served = ServedModel(
            backend=Inference.VLLM_GENERATE,
            base_url=url,
            renderer="generic, parser hermes",
            logprobs_mode="raw",
            noise="position",
            context=1024,
            weight_version=None,
        )
        await note_served(cluster.open_journal(), name, served)
        waiting = [asyncio.create_task(groups.until_scored(claim, print)) for claim in claims]
        await stopped_once_running(cluster, name)
        orders = {
            "status": ("status", name, *where),
            "group": ("pause", second, *where),
            "goes_on": ("resume", second, *where),
            "resumed": ("resume", name, *where),
        }
        answers = await clotho_many(orders, tmp_path)
        assert "2 items drawn: 2 open, 0 finished, 0 delivered, 0 dropped" in answers["status"].output, (
            answers
        )
        assert "vllm-generate" in answers["status"].output and "logprobs raw" in answers["status"].output
        assert "ClothoRun" in answers["status"].output, "where its workflows are listed"
        assert "doesn't answer" not in answers["status"].output
        assert "have stopped" in answers["group"].output
        assert f"{second} goes on" in answers["goes_on"].output
        assert f"{name} goes on" in answers["resumed"].output, answers
        await asyncio.gather(*waiting)
        orders = {
            "shown": ("show", f"{first}/r1", *where[:2]),
            "exported": ("export", name, "--format", "groups", *where[:2]),
            "scored": ("retry", second, *where),
            "unheard": ("retry", f"{name}/i-b.0", *where),
            "ended": ("cancel", name, *where),
        }
        answers = await clotho_many(orders, tmp_path)
        assert "completed" in answers["shown"].output, answers
        assert answers["exported"].output.count("\n") == 2
        assert "is scored: there is nothing left to do" in answers["scored"].complaint
        assert "there is no group" in answers["unheard"].complaint
        assert f"{name} is not running" in answers["ended"].complaint


async def stopped_once_running(cluster: Cluster, name: str) -> None:
    """All four rollouts run, are paused with their run and stop."""
    await Operations(cluster.open_journal(), cluster.client).pause(Target.named(name))
    await stopped(cluster, name, 4)


async def test_cancelled_groups_are_started_again_unless_they_were_dropped(cluster: Cluster) -> None:
    name, operate = "drawn-cancelled", Operations(cluster.open_journal(), cluster.client)
    async with serving(ScriptedModel(SLOW)) as url:
        groups, claims = await opened(cluster, name, url)
        first, second = (claim.group for claim in claims)
        waiting = [asyncio.create_task(groups.until_scored(claim, print)) for claim in claims]
        await stopped_once_running(cluster, name)
        await operate.cancel(Target.named(name))
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, Unfit) and ended.reason == "cancelled"
        await Ledger(cluster.open_journal(), name).drop(first, "cancelled", "by hand")
        assert await operate.resume(Target.named(name)) is True
        await cluster.client.get_workflow_handle(second).result()

        async def nothing_left() -> bool:
            return await operate.retry(Target.named(name)) is False

        await eventually(nothing_left, "only the dropped group is left")
        assert await groups.scored(claims[0]) is None
        assert await operate.retry(Target.named(f"{first}/r0")) is True
        await cluster.client.get_workflow_handle(f"{first}/r0").result()
        assert await operate.retry(Target.named(first)) is True
        settled = await operate.settled(Target.named(first))
        assert settled is not None and settled.reason == "cancelled"
        await groups.until_scored(claims[0], print)
