"""`clotho gc`: leftovers go, and a live run keeps everything."""

import os
import re

import pytest

from clotho.identifiers.keys import blob_key, call_key, sealed_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho
from tests.cli.held import held, held_in, let_go_until_the_end
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.scripts import run, say

HELD = held("echo -n 1 > /work/score")
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
    await cluster.sandboxes(1).create(f"{labels.rollout}/lease/0", SandboxSpec(), labels)
    return f"{labels.rollout}/lease/0"


async def leases(cluster: Cluster) -> set[str]:
    return {held.lease for held in await cluster.sandboxes().leases()}


@pytest.mark.slow
async def test_leftovers_go_and_a_live_run_keeps_everything(private_cluster: Cluster) -> None:
    cluster = private_cluster
    store, journal = FilesystemStore(cluster.store), cluster.open_journal()
    model = ScriptedModel(Script(conversations=(Conversation(variants=(QUICK, (HELD, say("Done.")))),)))
    worker = await cluster.start_worker()
    async with serving(model) as url:
        for name in ("done", "gone"):
            await (await start(cluster, name, url)).result()
        live = await start(cluster, "live", url, group_size=2)

        async def half_done() -> bool:
            sealed = await store.read_many([sealed_key("live/g000000/r0")]) != [None]
            return sealed and held_in(cluster) != []

        await eventually(half_done, "a sealed sibling of one that is held in its call")
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
        await worker.kill()  # its reaper would destroy what has expired; the call goes on without it
        expired = await expired_sandbox(cluster, journal)

        async def all_left() -> bool:
            """The lease has ended, and visibility, which lags, has the end of the run that is done."""
            output = (await gc(cluster, "--dry-run")).output
            return expired in output and "sealed rollout done/" in output

        await eventually(all_left, "what is to be removed")
        before, taken = await keys_of(cluster, "done", "gone", "live"), await leases(cluster)
        dry = await gc(cluster, "--dry-run")
        assert "deleted run gone: 1 entry\n" in dry.output
        assert "sealed rollout done/g000000/r0: 1 entry\n" in dry.output
        assert "live" not in dry.output
        assert "would be removed: 3 entries, 1 sandbox\n" in dry.output
        assert (await keys_of(cluster, "done", "gone", "live"), await leases(cluster)) == (before, taken)

        wet = await gc(cluster)
        assert without_ages(wet) == without_ages(dry).replace("would be removed", "removed")
        after = await keys_of(cluster, "done", "gone", "live")
        assert set(before) - set(after) == set(planted)
        assert not unfinished.exists()
        assert taken - await leases(cluster) == {expired}
        assert (await gc(cluster)).output == "removed: 0 entries, 0 sandboxes\n"

        await cluster.start_worker()
        progress = await let_go_until_the_end(cluster, live)
    assert (progress.scored, progress.reward_sum) == (1, 2.0)

    async def is_over() -> bool:
        return "sealed rollout live/g000000/r0: 1 entry" in (await gc(cluster, "--dry-run")).output

    await eventually(is_over, "its end to show")
