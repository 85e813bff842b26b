"""Containers made ahead: handed out once, to sandboxes of their kind, and ended with the worker that made them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import docker
import pytest

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.plugins.containers import pool
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.folders import ContainerFolder, ContainerRecord, members
from clotho.plugins.containers.pool import WarmPool
from clotho.sandbox.backend import Labels, SandboxSpec
from tests.machine_image import IMAGE
from tests.sandbox.shell import Shell, until_true
from tests.sandbox.test_containers import spec_of
from tests.support import PATIENCE_SECONDS

Open = Callable[..., ContainerBackend]
LABELS = Labels(store="s", cluster="c", namespace="n", rollout="warm/g000000/r0")
DIES = """
import asyncio, sys, time
from pathlib import Path
from clotho.plugins.containers import pool
from clotho.plugins.containers.backend import ContainerBackend
from tests.sandbox.test_containers import spec_of

pool.LEASE_SECONDS, pool.RENEW_SECONDS = 8, 0.5
backend = ContainerBackend(Path(sys.argv[1]), sys.argv[2], 2)
asyncio.run(backend.create("dead/lease/0", spec_of()))
time.sleep(600)
"""


@pytest.fixture
async def opened(engine: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Opens backends of a root of the test's own; nothing is left of them."""
    root = folder / f"pool-{request.node.name}"
    found: list[ContainerBackend] = []

    def open_one(warm: int) -> ContainerBackend:
        found.append(ContainerBackend(root, engine, warm))
        return found[-1]

    yield open_one
    for backend in found:
        await backend.close()
        for held in await backend.leases():
            await backend.destroy(held.lease)
        await backend.reap()
    assert list(members(root)) == []
    assert containers_of(engine, root) == []


def containers_of(engine: str, root: Path) -> list[str]:
    label = f"clotho.root={root}"
    found = docker.DockerClient(base_url=engine).containers.list(all=True, filters={"label": [label]})
    return [str(each.name) for each in found]


async def full(backend: ContainerBackend, size: int) -> list[str]:
    """The containers of a pool, once it has `size` members."""

    def look() -> bool:
        return len(list(members(backend._root))) == size

    await until_true(look, PATIENCE_SECONDS)
    return [each.container for each in members(backend._root)]


def container(backend: ContainerBackend, lease: str) -> str:
    return ContainerFolder.of_lease(backend._root, lease).container


async def test_a_sandbox_is_taken_from_the_pool(opened: Open) -> None:
    backend = opened(1)
    await backend.create("first/lease/0", spec_of())
    ready = await full(backend, 1)
    taken = await backend.create("next/lease/0", spec_of(), LABELS)
    assert [container(backend, "next/lease/0")] == ready
    shell = Shell(taken)
    assert (
        await shell.text("pwd; ls; echo kept > x; cat ~/x 2>&1 | grep -c No")
        == "/app\nempty\nfrom-the-image\n1"
    )
    again = await backend.create("next/lease/0", spec_of(), LABELS)
    attached = await backend.attach("next/lease/0", taken.incarnation, LABELS)
    assert again.incarnation == attached.incarnation == taken.incarnation
    assert await Shell(attached).text("cat x") == "kept"
    verify = Shell(await backend.open_verifier("next/lease/0", 0, {"hidden": b"h"}))
    assert await verify.text("cat x $CLOTHO_HIDDEN_FILES/hidden") == "kept\nh"
    await full(backend, 1)
    assert {each.lease for each in await backend.leases()} == {"first/lease/0", "next/lease/0"}
    (held,) = [each for each in await backend.leases() if each.lease == "next/lease/0"]
    assert held.labels == LABELS
    await backend.destroy("next/lease/0")
    assert not set(ready) & set(containers_of(backend._engine._address or "", backend._root))


@pytest.mark.parametrize(
    "other",
    [
        {"memory_mb": 64},
        {"max_processes": 99},
        {"lease_seconds": 601},
        {"variables": {"ONE": "1"}},
        {"backend": {"network": "default"}},
        {"backend": {"user": "65534"}},
        {"backend": {"read_only": True}},
    ],
    ids=str,
)
def test_only_the_same_settings_fit(opened: Open, other: dict[str, Any]) -> None:
    backend = opened(0)
    spec = spec_of()
    changed = {**other, "backend": {**dict(spec.backend), **other.get("backend", {})}}
    differs = SandboxSpec.model_validate({**dict(spec), **changed})
    keys = {backend._pool._key(record_of(each)) for each in (spec, spec_of(), differs)}
    assert len(keys) == 2


def record_of(spec: SandboxSpec) -> ContainerRecord:
    return ContainerRecord(
        lease="any/lease/0",
        labels=LABELS,
        spec=spec,
        config=cast(DockerConfig, spec.backend),
        image="sha256:1",
        machine="amd64",
        workdir="/app",
        environment={},
    )


async def test_of_two_claimers_one_has_it(opened: Open) -> None:
    """Each in a backend of its own, as two processes of a host."""
    maker, others = opened(1), [opened(0) for _ in range(4)]
    await maker.create("first/lease/0", spec_of())
    (ready,) = await full(maker, 1)
    maker._pool._closed = True  # it makes no other one meanwhile
    leases = [f"claimer-{number}/lease/0" for number in range(len(others))]
    made = await asyncio.gather(
        *(backend.create(lease, spec_of()) for backend, lease in zip(others, leases, strict=True))
    )
    assert len({each.incarnation for each in made}) == len(others)
    assert [container(maker, lease) for lease in leases].count(ready) == 1


async def test_a_claim_that_was_cut_off_is_finished(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, lease = opened(1), "cut-off/lease/0"
    await backend.create("first/lease/0", spec_of())
    (ready,) = await full(backend, 1)

    def dies(*_: object) -> bool:
        raise SandboxUnavailable("here the worker dies")

    with monkeypatch.context() as patch, suppress(SandboxUnavailable):
        patch.setattr(WarmPool, "_adopt", dies)
        await backend.create(lease, spec_of())
    assert lease not in {each.lease for each in await backend.leases()}
    taken = await backend.create(lease, spec_of())
    assert container(backend, lease) == ready
    assert (await Shell(taken).run("true")).code == 0


@pytest.mark.slow
async def test_members_end_with_a_worker_that_is_killed(opened: Open, engine: str) -> None:
    backend = opened(0)
    command = [sys.executable, "-c", DIES, str(backend._root), engine]
    worker = await asyncio.to_thread(subprocess.Popen, command)
    try:
        await full(backend, 2)
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        await asyncio.to_thread(worker.wait)

    def dead() -> bool:
        return all(map(WarmPool.is_dead, members(backend._root)))

    await until_true(dead, PATIENCE_SECONDS)
    assert await backend.expired() and await backend.reap()
    assert containers_of(engine, backend._root) == [container(backend, "dead/lease/0")]


async def test_a_pool_whose_image_vanishes_ends(opened: Open, engine: str) -> None:
    sdk, name = docker.DockerClient(base_url=engine), "localhost/clotho-test-vanishes"
    spec = spec_of(image=_copy(sdk, name))
    backend = opened(1)
    await backend.create("first/lease/0", spec)
    await full(backend, 1)
    await backend.destroy("first/lease/0")
    sdk.images.remove(name, force=True)  # podman removes its containers, too
    with pytest.raises(InvalidInput, match="there is no image"):
        await backend.create("late/lease/0", spec)
    await backend.reap()
    await backend.close()
    assert containers_of(engine, backend._root) == []


def _copy(sdk: docker.DockerClient, name: str) -> str:
    """An image of its own, that no other test has."""
    container = sdk.containers.create(IMAGE, command=["true"])
    try:
        container.commit(repository=name, changes="LABEL clotho.test=vanishes")
    finally:
        container.remove()
    return name


async def test_a_member_that_died_is_not_handed_out(opened: Open, engine: str) -> None:
    backend = opened(1)
    await backend.create("first/lease/0", spec_of())
    (ready,) = await full(backend, 1)
    backend._pool._closed = True
    docker.DockerClient(base_url=engine).containers.get(ready).kill()
    await until_true(lambda: all(map(WarmPool.is_dead, members(backend._root))), PATIENCE_SECONDS)
    taken = await backend.create("next/lease/0", spec_of())
    assert container(backend, "next/lease/0") != ready
    assert (await Shell(taken).run("true")).code == 0


async def test_no_more_than_its_size_is_kept(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """By two processes that both fill it, over several looks."""
    monkeypatch.setattr(pool, "RENEW_SECONDS", 0.05)
    one, other = opened(2), opened(2)
    await asyncio.gather(one.create("one/lease/0", spec_of()), other.create("other/lease/0", spec_of()))
    await full(one, 2)
    for number in range(2):
        await one.create(f"more-{number}/lease/0", spec_of())
    await full(one, 2)
    assert len(containers_of(one._engine._address or "", one._root)) == 6


async def test_it_is_filled_again_after_a_failure(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a full disk, or a supervisor that takes no renewal just now."""
    backend = opened(2)
    await backend.create("first/lease/0", spec_of())
    await full(backend, 2)
    filling = backend._pool._thread

    def fails(*_: object) -> bool:
        raise SandboxUnavailable("not now")

    with monkeypatch.context() as patch:
        patch.setattr(WarmPool, "_renewed", fails)
        await backend.create("second/lease/0", spec_of())
        await until_true(lambda: not backend._pool._wanted, PATIENCE_SECONDS)
    await backend.create("third/lease/0", spec_of())
    await full(backend, 2)
    assert backend._pool._thread is filling
