"""`clotho gc`: leftovers go, and a live run keeps everything."""

import os
import re

import pytest

from clotho.identifiers.rollout_keys import blob_key, call_key, sealed_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.campaign import CampaignProgress
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.scripts import run, say

HELD = run("until test -e /work/go; do sleep 0.1; done; echo -n 1 > /work/score")
QUICK = (run("echo -n 1 > /work/score"), say("Done."))


async def gc(cluster: Cluster, *options: str) -> Finished:
    variables = {
        "CLOTHO_TEMPORAL__NAMESPACE": cluster.client.namespace,
        "CLOTHO_SANDBOX__ROOT": str(cluster.folder / "sandboxes"),
    }
    place = ("--store", str(cluster.store), "--temporal", cluster.address)
    answer = await clotho("gc", *options, *place, environment=variables)
    assert (answer.status, answer.error) == (0, "")
    return answer


def without_ages(answer: Finished) -> str:
    return re.sub(r"expired \d+ s ago", "expired", answer.output)


async def keys_of(cluster: Cluster, *runs: str) -> list[str]:
    journal = cluster.open_journal()
    return [key for run in runs for key in await journal.keys(f"{run}/")]


async def expired_sandbox(cluster: Cluster, journal: Journal) -> str:
    """One whose lease ends at once, of a rollout that nobody knows."""
    labels = Labels(
        store=journal.store_identity,
        cluster=cluster.address,
        namespace=cluster.client.namespace,
        rollout="lost/g000000/r0",
    )
    await cluster.sandboxes().create(f"{labels.rollout}/lease/0", SandboxSpec(lease_seconds=1), labels)
    return f"{labels.rollout}/lease/0"


async def leases(cluster: Cluster) -> set[str]:
    return {held.lease for held in await cluster.sandboxes().leases()}


@pytest.mark.slow
async def test_leftovers_go_and_a_live_run_keeps_everything(private_cluster: Cluster) -> None:
    cluster = private_cluster
    store, journal = FilesystemStore(cluster.store), cluster.open_journal()
    model = ScriptedModel(Script(conversations=(Conversation(variants=(QUICK, (HELD, say("Done.")))),)))
    await cluster.start_worker()
    async with serving(model) as url:
        for name in ("done", "gone"):
            await (await start(cluster, name, url)).result()
        live = await start(cluster, "live", url, group_size=2)

        async def half_done() -> bool:
            return bool(await store.read_many([sealed_key("live/g000000/r0")]) != [None]) and any(
                lease.startswith("live/g000000/r1") for lease in await leases(cluster)
            )

        await eventually(half_done, "a sealed sibling of one that runs")
        where = ("--store", str(cluster.store), "--temporal", cluster.address)
        namespace = {"CLOTHO_TEMPORAL__NAMESPACE": cluster.client.namespace}
        deleted = await clotho("delete", "gone", "--yes", *where, environment=namespace)
        assert deleted.status == 0, deleted.error

        planted = [blob_key("done/g000000/r0", "0" * 64), call_key("gone/g000000/r0", "0000-00")]
        kept = [blob_key("live/g000000/r0", "0" * 64), "done/g000000/r0/unknown"]
        for key in (*planted, *kept):
            assert await store.create(key, b"left")
        unfinished = cluster.store / ".tmp" / "killed"
        unfinished.touch()
        os.utime(unfinished, (0, 0))
        expired = await expired_sandbox(cluster, journal)

        async def has_expired() -> bool:
            return expired in (await gc(cluster, "--dry-run")).output

        await eventually(has_expired, "the end of a lease")
        before, held = await keys_of(cluster, "done", "gone", "live"), await leases(cluster)
        dry = await gc(cluster, "--dry-run")
        assert "deleted run gone: 1 entries\n" in dry.output
        assert "sealed rollout done/g000000/r0: 1 entries\n" in dry.output
        assert "live" not in dry.output
        assert "would be removed: 3 entries, 1 sandboxes\n" in dry.output
        assert (await keys_of(cluster, "done", "gone", "live"), await leases(cluster)) == (before, held)

        wet = await gc(cluster)
        assert without_ages(wet) == without_ages(dry).replace("would be removed", "removed")
        after = await keys_of(cluster, "done", "gone", "live")
        assert set(before) - set(after) == set(planted)
        assert not unfinished.exists()
        assert held - await leases(cluster) == {expired}
        assert (await gc(cluster)).output == "removed: 0 entries, 0 sandboxes\n"

        for workspace in cluster.folder.glob("sandboxes/*/sandboxes/*/disk/work"):
            (workspace / "go").touch()
        progress: CampaignProgress = await live.result()
    assert (progress.scored, progress.reward_sum) == (1, 2.0)
    assert "sealed rollout live/g000000/r0: 1 entries" in (await gc(cluster, "--dry-run")).output
