"""Operating runs whose items are drawn one at a time: their groups bear the names of their items."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from clotho.cli.show import show
from clotho.errors import GroupRejected, InvalidInput
from clotho.models.backend import Inference, ServerCapabilities
from clotho.models.endpoint import Endpoint
from clotho.rollouts.item import Item
from clotho.rollouts.run import AdapterRunConfig
from clotho.runs.adapter_runs import open_adapter_run
from clotho.runs.export import Format, export_lines
from clotho.runs.group_workflows import Groups
from clotho.runs.ledger import Claim, Ledger
from clotho.runs.manifest import note_capabilities
from clotho.runs.operations import Boundaries, Operations
from clotho.runs.request import run_manifest
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho_many
from tests.cluster import FAST, Cluster
from tests.support import ONE_FILE, eventually
from tests.workflows.scripts import run, say

TURNS = (run("true"), run("true"), say("Done."))
SCRIPT = Script(conversations=(Conversation(variants=(TURNS,)),))
ITEMS: tuple[Item, ...] = ({"id": "a", "number": 0}, {"number": 1})
HASHED = "h-" + "0" * 32


async def opened(cluster: Cluster, name: str, url: str) -> tuple[Groups, list[Claim]]:
    """The run as the adapter opens it, and the claims of two items."""
    journal, order = cluster.open_journal(), AdapterRunConfig(task_queues=FAST)
    manifest = run_manifest(ONE_FILE, name, "scripted", group_size=1)
    await open_adapter_run(journal, manifest, Endpoint(base_url=url), order)
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


@pytest.mark.slow
async def test_a_run_that_an_adapter_draws_is_operated_by_the_command(
    cluster: Cluster, tmp_path: Path
) -> None:
    name, where = "drawn-operated", ("--store", str(cluster.store), "--temporal", cluster.address)
    operate = Operations(cluster.open_journal(), cluster.client)
    async with serving(ScriptedModel(SCRIPT)) as url:
        groups, claims = await opened(cluster, name, url)
        first, second = (claim.group for claim in claims)
        await note_capabilities(cluster.open_journal(), name, served_at(url))
        await operate.pause(Target.named(name))
        waiting = [asyncio.create_task(groups.until_scored(claim, print)) for claim in claims]
        await stopped(cluster, name, len(claims))
        await operate.pause(Target.named(second))
        orders: dict[str, Sequence[str]] = {
            "status": ("status", name, *where),
            "resumed": ("resume", name, *where),
            "goes_on": ("resume", second, *where),
        }
        answers = await clotho_many(orders, tmp_path)
        said = answers["status"].output
        assert "2 items drawn: 2 open, 0 finished, 0 delivered, 0 dropped" in said, answers
        assert "vllm-generate" in said and "logprobs raw" in said and "random numbers by position" in said
        assert "ClothoRun" in said, "where its workflows are listed"
        assert "doesn't answer" not in said
        assert f"{name} goes on" in answers["resumed"].output, answers
        assert f"{second} goes on" in answers["goes_on"].output, answers
        await asyncio.gather(*waiting)
    journal = cluster.open_journal()
    console = Console(record=True, width=100)
    await show(console, journal, f"{first}/r0")
    assert "completed: 3 turns" in console.export_text()
    lines = [line async for line in export_lines(journal, name, Format.GROUPS)]
    assert {json.loads(line)["group"] for line in lines} == {first, second}
    assert await operate.retry(Target.named(name)) is False
    with pytest.raises(InvalidInput, match="scored: there is nothing to retry"):
        await operate.retry(Target.named(second))
    for unheard in (f"{name}/i-b.0", f"{name}/g000000"):
        with pytest.raises(InvalidInput, match="there is no group"):
            await operate.retry(Target.named(unheard))
    with pytest.raises(InvalidInput, match=f"{name} is not running"):
        await operate.cancel(Target.named(name))


def served_at(url: str) -> ServerCapabilities:
    return ServerCapabilities(
        backend=Inference.VLLM_GENERATE,
        base_url=url,
        renderer="generic, parser hermes",
        logprobs_mode="raw",
        rng_scope="position",
        context=1024,
        weight_version=None,
    )


async def test_cancelled_groups_are_started_again_unless_they_were_dropped(cluster: Cluster) -> None:
    name, operate = "drawn-cancelled", Operations(cluster.open_journal(), cluster.client)
    async with serving(ScriptedModel(SCRIPT)) as url:
        groups, claims = await opened(cluster, name, url)
        first, second = (claim.group for claim in claims)
        await operate.pause(Target.named(name))
        waiting = [asyncio.create_task(groups.until_scored(claim, print)) for claim in claims]
        await stopped(cluster, name, len(claims))
        await operate.cancel(Target.named(name))
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, GroupRejected) and ended.reason == "cancelled"
        await Ledger(cluster.open_journal(), name).drop(first, "cancelled", "by hand")

        async def started() -> bool:
            """Visibility may still list what has just been cancelled."""
            return await operate.resume(Target.named(name))

        await eventually(started, "the group that wasn't dropped is started")
        assert await operate.retry(Target.named(f"{first}/r0")) is True
        for workflow in (second, f"{first}/r0"):
            await cluster.client.get_workflow_handle(workflow).result()
        assert await groups.scored(claims[0]) is None
        assert await operate.retry(Target.named(first)) is True
        settled = await operate.settled(Target.named(first))
        assert settled is not None and settled.reason == "cancelled"
        await groups.until_scored(claims[0], print)
