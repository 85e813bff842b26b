"""`clotho doctor --cluster`: what it finds among fifty hosts, and how long it takes."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from clotho.cli.doctor import cluster as doctor
from clotho.config import Settings, load_settings
from clotho.journal import Journal
from clotho.processes.liveness import Heartbeat, Liveness
from clotho.rollouts.task_queues import TaskQueues
from tests.cli.command import clotho
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually

HOSTS = 50
MOST_SECONDS = 10.0


async def write_heartbeats(
    journal: Journal, host: str, ahead: int = 0, machine: str = "", version: str = "1"
) -> None:
    """As its process with all roles writes them, whose clock is `ahead`."""
    queues = TaskQueues()
    names = (
        f"{queues.model.queue}-{host}-0",
        f"{queues.sandbox.queue}-{host}",
        f"{queues.sandbox.queue}-{host}-0",
    )
    for number, name in enumerate(names):
        key = f"~present/{name}/{int(time.time()) + ahead + number:012}"
        await journal.write(key, Heartbeat(machine=machine or host, version=version))


async def hosts_seen(cluster: Cluster) -> None:
    journal = cluster.open_journal()
    await asyncio.gather(*(write_heartbeats(journal, f"host-{number}") for number in range(HOSTS - 2)))
    await write_heartbeats(journal, "fast", ahead=600)
    await write_heartbeats(journal, "twice", machine="first", version="2")
    await write_heartbeats(journal, "twice", ahead=1, machine="second", version="2")


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """More time than the command takes: other tests run beside these."""
    for seconds in ("FIRST_SECONDS", "SECOND_SECONDS"):
        monkeypatch.setattr(doctor, seconds, PATIENCE_SECONDS)


def settings_of(cluster: Cluster) -> Settings:
    settings = load_settings(str(cluster.store), cluster.address)
    temporal = settings.temporal.model_copy(update={"namespace": cluster.client.namespace})
    return settings.model_copy(update={"temporal": temporal})


@pytest.mark.usefixtures("patience")
async def test_hosts_their_versions_clocks_and_names_are_told(private_cluster: Cluster) -> None:
    await hosts_seen(private_cluster)
    started = time.process_time()
    report = await doctor.examine_cluster(settings_of(private_cluster))
    assert time.process_time() - started < MOST_SECONDS
    assert len(report.hosts) == HOSTS
    assert all(len(host.alive) == 3 for host in report.hosts)
    facts = [finding.fact for finding in report.findings]
    assert "twice: 2 machines have this name" in facts
    assert any(fact.startswith("fast: its clock is") and "ahead of the store's" in fact for fact in facts)
    assert not any(fact.startswith("host-7: ") for fact in facts)
    assert "workers of 2 versions are alive: 1, 2" in facts
    assert {queue.queue for queue in report.queues} >= {"clotho", "clotho-llm", "clotho-sandbox"}
    assert report.store_seconds is not None and report.temporal_seconds is not None


@pytest.mark.usefixtures("patience")
async def test_a_host_with_the_role_workflows_alone_is_told(private_cluster: Cluster) -> None:
    await private_cluster.start_worker("workflows")
    settings = settings_of(private_cluster)

    async def told() -> bool:
        report = await doctor.examine_cluster(settings)
        facts = [finding.fact for finding in report.findings]
        host = doctor.HostSigns(host=private_cluster.host_name, only_workflows=1)
        lacking = "no worker asks for tasks of clotho-llm, clotho-env, clotho-sandbox"
        return host in report.hosts and lacking in facts

    await eventually(told, "the worker among the hosts, and the queues that it doesn't serve")
    place = ("--store", str(private_cluster.store), "--temporal", private_cluster.address)
    said = await clotho("doctor", "--cluster", *place, environment=private_cluster.host_variables)
    assert f"{private_cluster.host_name}: 1 process with the role workflows alone" in said.output


async def test_what_does_not_answer_costs_ten_seconds_at_most(tmp_path: Path) -> None:
    assert doctor.FIRST_SECONDS + doctor.SECOND_SECONDS < MOST_SECONDS
    report = await doctor.examine_cluster(load_settings(str(tmp_path / "none"), "127.0.0.1:1"))
    assert report.needs_attention
    assert not report.hosts and not report.queues
    assert len(report.findings) == 2


async def test_the_command_shows_it_and_prints_json(private_cluster: Cluster) -> None:
    name = f"{TaskQueues().sandbox.queue}-one"
    beating = asyncio.create_task(Liveness(private_cluster.open_journal(), name, version="7").run())
    place = ("--store", str(private_cluster.store), "--temporal", private_cluster.address)
    variables = private_cluster.host_variables
    shown = await clotho("doctor", "--cluster", *place, environment=variables)
    assert "one: 1 queue served; version 7; clock " in shown.output, shown
    printed = await clotho("doctor", "--cluster", "--json", *place, environment=variables)
    assert [host["host"] for host in json.loads(printed.output)["hosts"]] == ["one"]
    beating.cancel()
