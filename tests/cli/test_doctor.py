"""`clotho doctor`: orphans, workers that are gone, steps that are stuck, and a machine without services."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clotho.identifiers.keys import call_key
from clotho.plugins.notices.doctor import notice_settings
from clotho.plugins.notices.settings import NotifySettings
from clotho.processes.liveness import Liveness
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.testing.script import Conversation, Fault, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho
from tests.cli.held import held
from tests.cluster import FAST, Cluster
from tests.support import eventually, start
from tests.workflows.scripts import run, say


async def doctor(cluster: Cluster, *options: str) -> Finished:
    variables = {
        "CLOTHO_TEMPORAL__NAMESPACE": cluster.client.namespace,
        "CLOTHO_SANDBOX__ROOT": str(cluster.folder / "sandboxes"),
        "CLOTHO_HOST": cluster.host_name,
    }
    place = ("--store", str(cluster.store), "--temporal", cluster.address)
    answer = await clotho("doctor", *options, *place, environment=variables)
    assert answer.error == ""
    return answer


async def leases(cluster: Cluster) -> list[str]:
    return sorted(held.lease for held in await cluster.sandboxes().leases())


@pytest.mark.slow
async def test_orphans_are_told_from_live_sandboxes_and_only_they_are_destroyed(
    private_cluster: Cluster,
) -> None:
    cluster, group = private_cluster, "orphans/g000000"
    turns = (run("true"), held("true"), say("Done."))
    model = ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))
    async with serving(model) as url:
        worker = await cluster.start_worker()
        await start(cluster, "orphans", url, group_size=2)

        async def under_way() -> bool:
            return all((cluster.store / call_key(f"{group}/r{n}", "0000-00")).exists() for n in (0, 1))

        await eventually(under_way, "a call done in both sandboxes")

        async def all_is_well() -> Finished | None:
            """Visibility, which lags, lists all that is open, and the worker has just given a sign."""
            examined = await doctor(cluster)
            return examined if examined.status == 0 and "4 open runs" in examined.output else None

        healthy = await eventually(all_is_well, "an examination that finds nothing")
        await worker.kill()
    assert "isolation: proved" in healthy.output
    assert f"{group}/r0/lease/0: expires in " in healthy.output
    assert healthy.output.count("its rollout is open") == 2
    assert ": present, last sign " in healthy.output
    assert "4 open runs, groups and rollouts looked at: none is stuck" in healthy.output

    await cluster.client.get_workflow_handle(f"{group}/r0").terminate()
    journal = cluster.open_journal()
    signs = asyncio.create_task(Liveness(journal, f"{FAST.sandbox.queue}-{cluster.host_name}").run())

    async def is_left_to_the_worker() -> bool:
        return "orphan: this host's worker destroys it within 60 s" in (await doctor(cluster)).output

    await eventually(is_left_to_the_worker, "an orphan beside a worker that seems to be there")
    signs.cancel()
    await asyncio.wait([signs])
    await journal.delete(await journal.keys("~present/"))  # as if the worker had been gone for long
    orphaned = await doctor(cluster)
    assert orphaned.status == 1
    assert "its rollout has closed; orphan\n    → no worker is here to destroy it" in orphaned.output
    assert f"doctor --clean --store {cluster.store}" in orphaned.output
    assert "its rollout is open\n    → no worker is here to renew its lease: start one" in orphaned.output
    assert await leases(cluster) == [f"{group}/r0/lease/0", f"{group}/r1/lease/0"]

    cleaned = await doctor(cluster, "--clean")
    assert f"destroyed {group}/r0/lease/0" in cleaned.output
    assert await leases(cluster) == [f"{group}/r1/lease/0"]


async def test_a_sandbox_of_an_unknown_rollout_is_an_orphan_once_its_lease_has_expired(
    private_cluster: Cluster,
) -> None:
    cluster = private_cluster
    journal = cluster.open_journal()

    async def hold(run: str, seconds: int, namespace: str = cluster.client.namespace) -> str:
        labels = Labels(
            store=journal.store_identity,
            cluster=cluster.address,
            namespace=namespace,
            rollout=f"{run}/g000000/r0",
        )
        lease = f"{labels.rollout}/lease/0"
        await cluster.sandboxes(seconds).create(lease, SandboxSpec(), labels)
        return lease

    kept = await hold("kept", 600)
    expired = await hold("expired", 1)
    elsewhere = await hold("elsewhere", 600, "of-another-deployment")

    async def has_expired() -> bool:
        return "its lease has expired; orphan" in (await doctor(cluster)).output

    await eventually(has_expired, "the end of a lease")
    cleaned = await doctor(cluster, "--clean")
    assert f"destroyed {expired}" in cleaned.output
    assert f"{kept}: expires in " in cleaned.output
    assert f"  {elsewhere}: expires in " in cleaned.output, "which is nothing that needs attention"
    assert await leases(cluster) == [elsewhere, kept]
    assert "it lacks the search attributes ClothoRun, ClothoEnvironment" in cleaned.output
    assert "temporal operator search-attribute create --name ClothoRun --type Keyword" in cleaned.output


@pytest.mark.parametrize(
    ("settings", "fact", "advised"),
    [
        ({}, "none are asked for", False),
        ({"command": ("sh", "-c", "touch told")}, "command: /", False),
        ({"command": ("/nonexistent/tell-me",)}, "/nonexistent/tell-me is no program", True),
        ({"command": ("tell-me-unheard-of",)}, "tell-me-unheard-of is no program", True),
        ({"command": (__file__,)}, "is no program that can be run", True),
        ({"command": ("",)}, "it names no program", True),
        ({"webhook_variable": "HOOK"}, "HOOK is set here", False),
        ({"webhook_variable": "NO_HOOK"}, "NO_HOOK is not set", True),
        ({"webhook_variable": "SECRET"}, "SECRET holds no URL of http or https", True),
        ({"webhook_variable": "FILE"}, "FILE holds no URL of http or https", True),
        ({"webhook_token_variable": "SECRET"}, "a token and no URL", True),
        ({"webhook_variable": "HOOK", "webhook_token_variable": "SECRET"}, "SECRET is set here", False),
        ({"webhook_variable": "HOOK", "webhook_token_variable": "UMLAUT"}, "UMLAUT holds characters", True),
    ],
)
def test_settings_of_notices_that_can_tell_nobody_are_said(
    settings: dict[str, Any],
    fact: str,
    advised: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Without running the command or showing a secret."""
    monkeypatch.chdir(tmp_path)
    values = {"HOOK": "https://h/s3cret", "FILE": "file:///s3cret", "SECRET": "s3cret", "UMLAUT": "s3crüt"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    found = notice_settings(NotifySettings(**settings))
    assert any(fact in finding.fact and (finding.advice is not None) == advised for finding in found), found
    assert sum(finding.advice is not None for finding in found) == advised
    assert "s3cr" not in str(found)
    assert not (tmp_path / "told").exists()


@pytest.mark.slow
async def test_steps_that_fail_again_and_again_or_wait_where_nobody_serves_are_shown(
    private_cluster: Cluster,
) -> None:
    cluster = private_cluster
    faults = (
        Fault(kind="status", status=503, every=1, message="out of chips", headers={"retry-after": "0.1"}),
    )
    turns = (say("Done."),)
    model = ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),), faults=faults))
    async with serving(model) as url:
        await cluster.start_worker()
        unserved = FAST.environment.model_copy(update={"queue": "nobody-serves"})
        handles = [
            await start(cluster, "stuck", url),
            await start(
                cluster, "lonely", url, task_queues=FAST.model_copy(update={"environment": unserved})
            ),
        ]

        async def tried_often() -> bool:
            return max(model.calls.requests.values(), default=0) >= 6

        await eventually(tried_often, "many attempts")

        async def both_are_told() -> Finished | None:
            """Visibility lags."""
            examined = await doctor(cluster)
            told = all(name in examined.output for name in ("stuck/g000000/r0: ", "lonely/~campaign: "))
            return examined if told else None

        stuck = await eventually(both_are_told, "what both runs wait for")
        for handle in handles:
            await handle.terminate()
    assert stuck.status == 1
    assert "stuck/g000000/r0: sample_turn, attempt " in stuck.output
    assert "out of chips" in stuck.output
    assert "clotho cancel stuck/g000000/r0" in stuck.output
    assert (
        "lonely/~campaign: enumerate_items waits in nobody-serves, for which no worker asks" in stuck.output
    )


async def test_without_services_it_says_what_is_missing(tmp_path: Path) -> None:
    answer = await clotho("doctor", "--temporal", "127.0.0.1:9", "--store", "mistyped", folder=tmp_path)
    assert answer.status == 1
    assert "store: there is no store at mistyped" in answer.output
    assert "Temporal: no Temporal server answers at 127.0.0.1:9" in answer.output
    assert "Traceback" not in answer.error
    assert list(tmp_path.iterdir()) == []


async def test_in_a_new_folder_nothing_is_missing(tmp_path: Path) -> None:
    answer = await clotho("doctor", folder=tmp_path)
    assert "store: none yet; the first run makes .clotho/store" in answer.output
    assert "! store" not in answer.output
    assert list(tmp_path.iterdir()) == []
