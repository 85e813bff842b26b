"""Machines in clouds, through the packages of the clouds, against servers that speak their protocols here."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from clotho.errors import InvalidInput, IsolationUnavailable, SandboxLost, SandboxUnavailable
from clotho.plugins.clouds.config import ModalConfig
from clotho.plugins.clouds.machines import Pace
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.instances import MAKING_SECONDS
from clotho.plugins.containers.relay.machine import Base, Channel, Machine
from clotho.plugins.containers.relay.records import RelayFolder
from clotho.sandbox.supervised.folders import GRACE_SECONDS
from tests.sandbox.clouds.cloud import CLOUDS, DAYTONA, Cloud, needs_root
from tests.support import eventually

pytestmark = [needs_root, pytest.mark.filterwarnings("ignore:`server_url` is deprecated")]

LABELS = {"clotho-store": "a b/ç_d%~", "clotho-rollout": f"run/{'g' * 200}.r3", "clotho-empty": ""}
LIFETIME_SECONDS = 600.0


@pytest.fixture(params=CLOUDS)
async def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cloud]:
    async with CLOUDS[request.param](tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
async def machines(cloud: Cloud) -> AsyncIterator[Machine]:
    made = cloud.client()
    yield made
    await made.close()


@pytest.fixture
async def others(cloud: Cloud) -> AsyncIterator[Machine]:
    """The same machines, as another worker reaches them."""
    made = cloud.client()
    yield made
    await made.close()


async def create(machines: Machine, cloud: Cloud, name: str = "m1") -> None:
    spec = cloud.spec()
    await machines.create(name, await machines.base(spec), spec, LABELS, LIFETIME_SECONDS)


async def everything(channel: Channel) -> bytes:
    content = b""
    while piece := await channel.receive():
        content += piece
    return content


async def test_a_name_has_one_machine(machines: Machine, cloud: Cloud) -> None:
    await asyncio.gather(*(create(machines, cloud) for _ in range(3)))
    await create(machines, cloud)
    assert len(cloud.server.running("m1")) == 1


@pytest.mark.parametrize("cloud", ["modal"], indirect=True)
async def test_no_connection_is_left_of_machines_that_are_closed(cloud: Cloud) -> None:
    machines, address = cloud.client(), os.environ["MODAL_SERVER_URL"]

    async def is_closed() -> bool:
        return not connections_to(address)

    await create(machines, cloud)
    assert connections_to(address)
    await machines.close()
    await eventually(is_closed, "the end of all connections")


def connections_to(address: str) -> int:
    """The established connections to a server on loopback."""
    ending = f":{urlsplit(address).port or 0:04X}"
    connections = (line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:])
    return sum(peer.endswith(ending) and state == "01" for _, _, peer, state, *_ in connections)


async def test_a_machine_is_found_with_its_labels(machines: Machine, cloud: Cloud) -> None:
    await create(machines, cloud)
    found = await machines.find("m1")
    assert found is not None and found.running and found.labels.items() >= LABELS.items()
    assert await machines.find("m2") is None


async def test_machines_are_listed_by_labels(machines: Machine, cloud: Cloud) -> None:
    await create(machines, cloud)
    (listed,) = await machines.list({"clotho-store": LABELS["clotho-store"]})
    assert listed.name == "m1"
    assert not await machines.list({"clotho-store": "another"})


async def test_another_worker_finds_a_machine_and_what_is_in_it(
    machines: Machine, others: Machine, cloud: Cloud
) -> None:
    await create(machines, cloud)
    channel = await machines.open("m1", ["sh", "-c", "echo here > /tmp/file; echo ready; exec sleep 1000"])
    assert await channel.receive() == b"ready\n"
    await channel.close()
    channel = await others.open("m1", ["cat", "/tmp/file"])
    assert await everything(channel) == b"here\n"
    await channel.close()


async def test_streams_bear_every_byte_both_ways(machines: Machine, cloud: Cloud) -> None:
    await create(machines, cloud)
    channel = await machines.open("m1", ["cat"])
    sent = bytes(range(256)) * 100 + os.urandom(400_000)
    sending = asyncio.create_task(channel.send(sent))
    received = b""
    while len(received) < len(sent):
        received += await channel.receive()
    await sending
    assert received == sent
    await channel.close()


async def test_files_are_put_whole_and_can_be_run(machines: Machine, cloud: Cloud) -> None:
    await create(machines, cloud)
    content = os.urandom(300_000)
    program = b"#!/bin/sh\nexec cat /opt/some/where/data"
    await machines.put("m1", {"/opt/some/where/data": content, "/opt/program": program})
    channel = await machines.open("m1", ["/opt/program"])
    assert await everything(channel) == content
    await channel.close()


async def test_a_stream_ends_with_its_program_and_has_no_errors_in_it(
    machines: Machine, cloud: Cloud
) -> None:
    await create(machines, cloud)
    channel = await machines.open("m1", ["sh", "-c", "echo one; echo two >&2; exit 3"])
    assert await everything(channel) == b"one\n"
    with pytest.raises(SandboxUnavailable):
        await channel.send(b"more" * 100_000)
    await channel.close()
    await channel.close()


async def test_a_destroyed_machine_ends_its_streams_and_is_lost(
    machines: Machine, others: Machine, cloud: Cloud
) -> None:
    await create(machines, cloud)
    channel = await machines.open("m1", ["cat"])
    await others.destroy("m1")
    assert await everything(channel) == b""
    await channel.close()
    assert await machines.find("m1") is None
    with pytest.raises(SandboxLost):
        await machines.open("m1", ["true"])
    with pytest.raises(SandboxLost):
        await machines.put("m1", {"/tmp/file": b""})
    await machines.destroy("m1")


async def test_a_machine_that_ended_unseen_is_lost_and_made_anew(machines: Machine, cloud: Cloud) -> None:
    await create(machines, cloud)
    await (await machines.open("m1", ["true"])).close()
    (made,) = cloud.server.running("m1")
    await made.box.destroy()
    with pytest.raises(SandboxLost):
        await machines.open("m1", ["true"])
    await create(machines, cloud)
    channel = await machines.open("m1", ["echo", "again"])
    assert await everything(channel) == b"again\n"
    await channel.close()


async def test_the_cloud_is_told_when_a_machine_ends_and_what_it_may_use(
    machines: Machine, cloud: Cloud
) -> None:
    await create(machines, cloud)
    (made,) = cloud.server.running("m1")
    assert (made.lifetime_seconds, made.memory_mb, made.network) == (LIFETIME_SECONDS, 1024, False)
    spec = cloud.spec(network="default")
    await machines.create("m2", await machines.base(spec), spec, LABELS, 1e9)
    (made,) = cloud.server.running("m2")
    assert made.network
    if machines.max_lifetime_seconds is not None:
        assert made.lifetime_seconds == machines.max_lifetime_seconds


async def test_the_cloud_is_told_which_hosts_commands_may_reach(machines: Machine, cloud: Cloud) -> None:
    spec = cloud.spec(network=["example.org", "*.example.com", "192.0.2.7", "198.51.100.0/24"])
    await machines.create("m1", await machines.base(spec), spec, LABELS, LIFETIME_SECONDS)
    (made,) = cloud.server.running("m1")
    assert made.network == {"example.org", "*.example.com", "192.0.2.7/32", "198.51.100.0/24"}


@pytest.mark.parametrize(
    "host", ["https://example.org", "example.org:80", "*", "Example.org", "2001:db8::1", "a/b", ""]
)
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="is no domain in small letters"):
        ModalConfig.model_validate({"image": "x", "network": ["example.org", host]})


def test_an_empty_list_of_hosts_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        ModalConfig.model_validate({"image": "x", "network": []})


async def test_an_image_is_built_once(machines: Machine, others: Machine, cloud: Cloud) -> None:
    await others.base(cloud.spec())
    once = cloud.server.builds
    bases = await asyncio.gather(*(machines.base(cloud.spec()) for _ in range(20)))
    assert len(set(map(str, bases))) == 1 and cloud.server.builds <= 2 * once


async def test_an_image_that_does_not_exist_is_named(machines: Machine, cloud: Cloud) -> None:
    for _ in range(2):
        with pytest.raises(InvalidInput, match="missing:1"):
            spec = cloud.spec(image="missing:1")
            await machines.create("m1", await machines.base(spec), spec, LABELS, LIFETIME_SECONDS)


async def test_an_image_that_the_cloud_lost_is_no_outage(machines: Machine, cloud: Cloud) -> None:
    with pytest.raises(InvalidInput):
        await machines.create("m1", Base(image="missing:1"), cloud.spec(), LABELS, LIFETIME_SECONDS)


@pytest.mark.parametrize("failure", ["too many", "outage"])
async def test_outages_are_tried_again_later(machines: Machine, cloud: Cloud, failure: str) -> None:
    cloud.server.fail_creations(failure, 2)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(SandboxUnavailable):
            await create(machines, cloud)
    await create(machines, cloud)
    assert len(cloud.server.running("m1")) == 1


async def test_wrong_credentials_are_no_outage(machines: Machine, cloud: Cloud) -> None:
    cloud.server.fail_creations("wrong key", 1)
    with pytest.raises(InvalidInput):
        await create(machines, cloud)


async def test_missing_credentials_are_named(
    machines: Machine, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(cloud.credential)
    with pytest.raises(InvalidInput, match=cloud.credential):
        await machines.find("m1")


async def test_bounds_that_the_cloud_has_not_are_refused(machines: Machine, cloud: Cloud) -> None:
    with pytest.raises(IsolationUnavailable, match="disk"):
        await machines.base(cloud.spec().model_copy(update={"limits": "required"}))


async def test_a_machine_lives_no_longer_than_leases_are_renewed(
    cloud: Cloud, tmp_path: Path, lease: str
) -> None:
    """Where the cloud can't extend its life, it has the longest."""
    machines, root = cloud.client(), tmp_path / "sandboxes"
    backend = RelayedBackend(root, machines)
    spec = cloud.spec().model_copy(update={"lease_seconds": 660})
    await backend.create(lease, spec)
    name = RelayFolder.of_lease(root, lease).machine
    (made,) = cloud.server.running(name)
    if machines.extends:
        assert made.lifetime_seconds == MAKING_SECONDS + 660 + GRACE_SECONDS
    else:
        assert made.lifetime_seconds == machines.max_lifetime_seconds
    await backend.renew(lease, 2000)
    (made,) = cloud.server.running(name)
    assert made.lifetime_seconds >= 2000 + GRACE_SECONDS
    await backend.destroy(lease)
    await backend.close()


@pytest.mark.parametrize("cloud", ["daytona"], indirect=True)
async def test_a_machine_that_has_stopped_is_lost(machines: Machine, others: Machine, cloud: Cloud) -> None:
    """Whatever is asked of it is refused, as a wrong request is."""
    server: Any = cloud.server
    asked: list[Callable[[Machine], Awaitable[object]]] = [
        lambda each: each.open("m1", ["true"]),
        lambda each: each.put("m1", {"/tmp/file": b""}),
        lambda each: each.extend("m1", 600),
    ]
    for ask in asked:
        await create(machines, cloud)
        await create(others, cloud)
        await server.stop("m1")
        for each in (machines, others):
            with pytest.raises(SandboxLost, match="stopped"):
                await ask(each)
        with pytest.raises(SandboxLost):
            await ask(machines)


async def test_a_sandbox_at_modal_ends_without_a_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with CLOUDS["modal"](tmp_path, monkeypatch) as cloud:
        monkeypatch.setattr("clotho.plugins.clouds.modal.CHECK_SECONDS", 0.1)
        monkeypatch.setattr("clotho.plugins.clouds.modal.CHECKS", 3)
        machines = cloud.client()
        await create(machines, cloud)
        while await machines.find("m1") is not None:
            await asyncio.sleep(0.05)
        assert not cloud.server.running("m1")
        await machines.close()


async def test_a_machine_at_e2b_that_shows_late_is_the_only_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with CLOUDS["e2b"](tmp_path, monkeypatch) as cloud:
        from tests.sandbox.clouds.e2b_server import E2bServer

        assert isinstance(cloud.server, E2bServer)
        machines, others = cloud.client(), cloud.client()
        cloud.server.shows = shows = asyncio.Event()
        late = asyncio.create_task(create(machines, cloud))
        while cloud.server.shows is not None:
            await asyncio.sleep(0.05)
        await create(others, cloud)
        shows.set()
        await late
        assert len(cloud.server.running("m1")) == 1
        for each in (machines, others):
            channel = await each.open("m1", ["echo", "here"])
            assert await everything(channel) == b"here\n"
            await channel.close()
            await each.close()


async def test_a_machine_at_daytona_that_is_destroyed_as_it_is_made_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with CLOUDS["daytona"](tmp_path, monkeypatch) as cloud:
        from tests.sandbox.clouds.daytona_server import DaytonaServer

        assert isinstance(cloud.server, DaytonaServer)
        machines = cloud.client()
        cloud.server.failing = [409]
        with pytest.raises(SandboxUnavailable):
            await create(machines, cloud)
        await create(machines, cloud)
        assert len(cloud.server.running("m1")) == 1
        await machines.close()


async def test_creations_are_spread_in_time() -> None:
    loop = asyncio.get_running_loop()
    pace = Pace(per_second=100)
    began = loop.time()
    await asyncio.gather(*(pace.turn() for _ in range(11)))
    assert loop.time() - began >= 0.1


def test_a_full_account_of_daytona_is_an_outage() -> None:
    # imported here, as by the others: the package takes its time
    import daytona

    from clotho.plugins.clouds.daytona import DaytonaMachines

    machines = DaytonaMachines(DAYTONA)
    full = daytona.DaytonaError("Total CPU limit exceeded. Maximum allowed: 250.", status_code=403)
    wrong = daytona.DaytonaError("image is no image", status_code=400)
    assert machines.clotho_error(full) is SandboxUnavailable
    assert machines.clotho_error(wrong) is InvalidInput
