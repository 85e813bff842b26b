"""The development server: settings, health, crashes and restarts; and where its binary comes from."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer, server_command
from clotho.errors import InvalidInput
from clotho.processes.ports import claim, free_port


@pytest.fixture(scope="module")
async def binary() -> Path:
    return await temporal_binary()


@pytest.fixture
async def server(binary: Path, tmp_path: Path) -> AsyncIterator[TemporalServer]:
    server = TemporalServer(
        binary,
        tmp_path / "logs" / "temporal.log",
        db=tmp_path / "db" / "temporal.db",
        search_attributes={"ClothoTestName": "Keyword", "ClothoTestScore": "Double"},
    )
    async with server:
        yield server


async def test_serves_with_its_search_attributes(server: TemporalServer) -> None:
    client = await Client.connect(server.address)
    request = ListSearchAttributesRequest(namespace="default")
    listed = await client.operator_service.list_search_attributes(request)
    assert {"ClothoTestName", "ClothoTestScore"} <= listed.custom_attributes.keys()


async def test_state_outlives_a_crash_at_the_same_address(server: TemporalServer) -> None:
    client = await Client.connect(server.address)
    await client.start_workflow("Nobody", id="kept", task_queue="none")
    first = server.pid
    await server.kill()
    assert not server.running
    await server.start()
    assert server.pid != first
    again = await Client.connect(server.address)
    assert (await again.get_workflow_handle("kept").describe()).workflow_type == "Nobody"


async def test_stops_and_frees_its_port(server: TemporalServer) -> None:
    await server.stop()
    assert not server.running
    socket.create_server(("127.0.0.1", server.port)).close()


async def test_port_in_use(binary: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = TemporalServer(binary, tmp_path / "log", port=port, search_attributes={})
        with pytest.raises(InvalidInput, match=f"port {port} is in use"):
            await server.start()
    assert server.pid is None


async def test_says_why_it_did_not_start(binary: Path, tmp_path: Path) -> None:
    server = TemporalServer(binary, tmp_path / "log", search_attributes={"Broken": "Nonsense"})
    with pytest.raises(InvalidInput, match="invalid search attribute value type"):
        await server.start()
    assert not server.running


async def test_a_server_that_never_serves_is_ended(tmp_path: Path) -> None:
    mute = program(tmp_path / "mute", "exec sleep 60")
    server = TemporalServer(mute, tmp_path / "log", search_attributes={})
    with pytest.raises(InvalidInput, match="did not serve within"):
        await server.start(seconds=0.5)
    assert not server.running


def test_command() -> None:
    command = " ".join(server_command(Path("temporal"), 7233, 8233, Path("t.db"), {"Run": "Keyword"}))
    assert command == (
        "temporal server start-dev --log-level error --ip 127.0.0.1 --port 7233 --ui-port 8233 --db-filename t.db"
        " --sqlite-pragma journal_mode=WAL --sqlite-pragma synchronous=NORMAL --search-attribute Run=Keyword"
        " --dynamic-config-value history.transferProcessorMaxPollRPS=2000"
        " --dynamic-config-value history.timerProcessorMaxPollRPS=2000"
        " --dynamic-config-value frontend.namespaceCount=10000"
        " --dynamic-config-value matching.numTaskqueueReadPartitions=1"
        " --dynamic-config-value matching.numTaskqueueWritePartitions=1"
    )
    bare = server_command(Path("temporal"), 7233, None, None, {})
    assert "--headless" in bare
    assert "--sqlite-pragma" not in bare


def test_a_free_port_is_left_to_a_server_that_listens_at_it() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port))
    for _ in range(2):
        claim(port)
        with socket.create_server(("127.0.0.1", port)), pytest.raises(InvalidInput, match=str(port)):
            claim(port)


def test_free_ports_differ() -> None:
    assert len({free_port() for _ in range(100)}) == 100


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
