"""Orders of the rollout API's callers: what they may not choose, and how large they may be."""

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import ValidationError
from temporalio.client import Client

from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.listeners.access import Access
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.plugins.mcp.settings import McpServer, McpSettings
from clotho.plugins.orders.command import LIMITS
from clotho.plugins.orders.ordering import Orders
from clotho.plugins.orders.run_order import CheckedRunOrder
from clotho.plugins.orders.server import rollout_api
from clotho.rollouts.run import RunManifest
from clotho.run_settings import RunSettings

ON_HOST = {"mcp": {"servers": {"x": {"command": ["id"], "where": "host"}}}}


def servers(manifest: RunManifest) -> dict[str, McpServer]:
    found = manifest.tool_settings.of(McpSettings)
    assert found is not None
    return found.servers


def ordered(config: dict[str, Any] | None = None, **settings: Any) -> CheckedRunOrder:
    fields = {
        "environment": "file_tasks",
        "environment_config": config or {},
        "model": "m",
        "endpoint": Endpoint(base_url="http://127.0.0.1:1/v1", inference=Inference.CHAT),
        "group_size": 2,
        "settings": settings,
    }
    return CheckedRunOrder.model_validate(fields)


@pytest.mark.attack("listeners", "an order of a run whose programs run on the worker's host")
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(ordered(plugins=ON_HOST), id="by the run's settings"),
        pytest.param(ordered({"plugins": ON_HOST}), id="by the environment's configuration"),
        pytest.param(ordered(unsafe_local=True), id="without isolation"),
        pytest.param(ordered(mounts={"/opt/secrets": "/root"}), id="with a folder of the host"),
    ],
)
def test_what_runs_on_hosts_is_refused(order: CheckedRunOrder) -> None:
    with pytest.raises(InvalidInput, match="where: host"):
        order.manifest("r", RunSettings())


def test_what_the_servers_settings_say_may_run_on_hosts() -> None:
    defaults = RunSettings(plugins=ON_HOST, unsafe_local=True, mounts={"/opt/agents": "/srv/agents"})
    for order in (ordered(), ordered(plugins=ON_HOST, unsafe_local=True)):
        manifest = order.manifest("r", defaults)
        assert not servers(manifest)["x"].sandboxed and manifest.sandbox.unsafe_local
        assert manifest.sandbox.mounts
    other = ordered(plugins={"mcp": {"servers": {"x": {"command": ["reboot"], "where": "host"}}}})
    with pytest.raises(InvalidInput, match="where: host"):
        other.manifest("r", defaults)
    less = ordered(plugins={"mcp": {"servers": {"y": {"command": ["id"]}}}}, unsafe_local=False)
    fewer = less.manifest("r", defaults)
    assert servers(fewer)["y"].sandboxed and not fewer.sandbox.unsafe_local


@pytest.mark.attack("listeners", "an order that names a file of the server's, or who is told of its end")
def test_files_and_notices_are_no_settings_of_an_order(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("a secret: {")
    with pytest.raises(ValidationError, match="no file of the server is read") as refused:
        ordered(prices=str(secret))
    assert "a secret" not in str(refused.value)
    with pytest.raises(ValidationError, match="notify"):
        ordered(notify={"command": ["id"]})
    assert ordered(prices={"m": {"prompt": 1, "sampled": 2}}).settings.prices is not None


@pytest.mark.attack("listeners", "an order of 16 MiB that is 750 MB of memory once it is parsed")
@pytest.mark.parametrize("filling", [b"0,", b"[],", b'{"a":[]},', b'"",'])
async def test_an_order_is_bounded_in_what_it_comes_to(tmp_path: Path, filling: bytes) -> None:
    orders = Orders(cast(Client, None), Journal(FilesystemStore(tmp_path)), RunSettings())
    transport = httpx.ASGITransport(rollout_api(orders, Access(), LIMITS))
    body = b'{"item":{"x":[' + filling * (LIMITS.sent_bytes // len(filling) - 20) + b"0]}}"
    tracemalloc.start()
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.put("/runs/r/groups/g", content=body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.status_code, "larger than" in answer.text) == (413, True)
    assert peak < 8 * LIMITS.sent_bytes


@pytest.mark.attack("listeners", "an order that is larger than allowed, with or without its length")
@pytest.mark.parametrize("chunked", [False, True])
async def test_too_large_an_order_is_answered_413(tmp_path: Path, *, chunked: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b" " * 2**20

    orders = Orders(cast(Client, None), Journal(FilesystemStore(tmp_path)), RunSettings())
    transport = httpx.ASGITransport(rollout_api(orders, Access(), LIMITS))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.put("/runs/r", content=pieces() if chunked else b" " * 17 * 2**20)
    assert (answer.status_code, answer.json().keys()) == (413, {"error"})
