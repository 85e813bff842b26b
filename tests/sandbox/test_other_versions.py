"""Sandboxes of another version: workers of two share a host while one takes the other's place."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.errors import SandboxUnavailable
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.sandbox.backend import Labels
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.supervised.folders import GRACE_SECONDS
from tests.sandbox.conftest import BACKENDS, SPECS, needs_root

OURS = Labels(store="file:/store", cluster="localhost:7233", namespace="default", rollout="run/g0/r0")
Kept = LocalBackend | RelayedBackend


@pytest.fixture(params=["local", "relay"])
async def kept(request: pytest.FixtureRequest, folder: Path, lease: str) -> AsyncIterator[Kept]:
    """A backend with a sandbox."""
    if request.param == "relay":
        request.getfixturevalue("engine_elsewhere")
    backend = BACKENDS[request.param](folder / f"of-versions-{request.param}")
    assert isinstance(backend, Kept)
    await backend.create(lease, SPECS[request.param], OURS)
    yield backend
    await backend.destroy(lease)


@needs_root
async def test_a_sandbox_of_another_version_is_left_alone_until_its_lease_is_over(
    kept: Kept, lease: str
) -> None:
    spec = SPECS[kept.names[0].replace("docker", "relay")]
    made = await kept.create(lease, spec, OURS)
    (file,) = kept._root.glob("sandboxes/*/sandbox.json")
    record = file.read_text()
    of_a_later_version = record.replace("{", '{"a_later_field": true, ', 1)
    file.write_text(of_a_later_version)
    assert not await kept.expired()
    assert not await kept.reap()
    assert not await kept.leases()
    for asked in (
        kept.create(lease, spec, OURS),
        kept.attach(lease, made.incarnation),
        kept.renew(lease, 5000),
        kept.destroy(lease, OURS),
    ):
        with pytest.raises(SandboxUnavailable, match=r"another version: a_later_field"):
            await asked
    file.write_text(record)
    assert (await kept.attach(lease, made.incarnation)).incarnation == made.incarnation
    file.write_text(of_a_later_version)
    past = time.time() - GRACE_SECONDS - 1
    for path in (*kept._root.rglob("deadline"), file.parent):
        os.utime(path, (past, past))
    assert file.parent.name in await kept.reap()
    assert not file.exists()
