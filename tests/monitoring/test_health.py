"""What probes are told of a worker: alive while its loop answers, ready while it can do work."""

import asyncio
import logging
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.journal.folder import THREADS, FilesystemStore
from clotho.listeners.connections import HEADER_SECONDS
from clotho.monitoring.endpoint import PORTS
from clotho.monitoring.health import PROBED_KEY, Readiness, serve_health
from clotho.monitoring.probe import faults
from clotho.processes.child import ChildProcess
from clotho.processes.ports import HOST, free_port
from clotho.worker_settings import HealthSettings
from tests.cluster import Cluster, cluster_in
from tests.support import PATIENCE_SECONDS, eventually, start

ADDRESS = re.compile(r"health at (http://\S+)/healthz")
READY: dict[str, Any] = {"ready": True, "draining": False, "lacking": []}
LACKING_STORE = {"ready": False, "draining": False, "lacking": ["store"]}
STOPPED_SECONDS = 2.0
"""Time for an answer of a process that is stopped: none ever comes."""


def readiness_of(folder: Path) -> Readiness:
    store = FilesystemStore(folder)

    async def ask() -> None:
        await store.read_many([PROBED_KEY])

    return Readiness({"store": ask})


@asynccontextmanager
async def health(readiness: Readiness) -> AsyncIterator[int]:
    """The port of a health server in this process."""
    port = free_port()
    serving = asyncio.create_task(serve_health(HealthSettings(port=port), readiness))
    try:
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:

            async def answers() -> bool:
                assert not serving.done()
                try:
                    return (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(answers, "the health server answers")
        yield port
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with health(readiness_of(tmp_path)) as port:
        yield f"http://127.0.0.1:{port}"


async def get(url: str, **request: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        return await client.get(url, **request)


async def health_of(worker: ChildProcess) -> str:
    """The address that the worker's log names."""

    async def address() -> str | None:
        assert worker.running, worker.output
        found = ADDRESS.search(worker.output)
        return found[1] if found else None

    return await eventually(address, "the address of health checks in the log")


async def says(url: str, expected: dict[str, Any]) -> None:
    """Wait until /readyz says `expected`."""

    async def said() -> bool:
        answer = await get(f"{url}/readyz")
        return answer.json() == expected and answer.status_code == (200 if expected["ready"] else 503)

    await eventually(said, f"/readyz says {expected}")


@pytest.mark.slow
async def test_a_worker_that_drains_is_alive_and_not_ready(private_cluster: Cluster) -> None:
    asked = asyncio.Event()
    silent = await asyncio.start_server(lambda reader, writer: asked.set(), "127.0.0.1", 0)
    model = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    worker = await private_cluster.start_worker(CLOTHO_HEALTH__PORT=str(free_port()))
    async with silent:
        url = await health_of(worker)
        await says(url, READY)
        await start(private_cluster, "held", model)
        await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)
        worker.terminate()
        await says(url, {"ready": False, "draining": True, "lacking": []})
        assert (await get(f"{url}/healthz")).json() == {"alive": True}
        worker.terminate()
        await asyncio.wait_for(worker.wait(), PATIENCE_SECONDS)


@pytest.mark.slow
async def test_a_worker_whose_loop_stands_still_does_not_answer(private_cluster: Cluster) -> None:
    worker = await private_cluster.start_worker(CLOTHO_HEALTH__PORT=str(free_port()))
    url = await health_of(worker)
    assert (await get(f"{url}/healthz")).status_code == 200
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        with pytest.raises(httpx.TimeoutException):
            async with httpx.AsyncClient(timeout=STOPPED_SECONDS) as client:
                await client.get(f"{url}/healthz")
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    assert (await get(f"{url}/healthz")).status_code == 200


@pytest.mark.slow
async def test_a_worker_is_not_ready_while_temporal_is_away(folder: Path) -> None:
    place = folder / "health"
    log, database = folder / "health-temporal.log", folder / "health.db"
    server = TemporalServer(await temporal_binary(), log, ui_port=None, db=database)
    await server.start(PATIENCE_SECONDS)
    try:
        async with cluster_in(server, place, "default") as cluster:
            url = await health_of(await cluster.start_worker(CLOTHO_HEALTH__PORT=str(free_port())))
            await says(url, READY)
            await server.process.kill()
            await says(url, {"ready": False, "draining": False, "lacking": ["temporal"]})
            assert (await get(f"{url}/healthz")).status_code == 200
            await server.start(PATIENCE_SECONDS)
            await says(url, READY)
    finally:
        await server.stop()


async def test_a_store_that_fails_is_lacking_until_it_answers(tmp_path: Path) -> None:
    async with health(readiness_of(tmp_path)) as port:
        url, probed = f"http://127.0.0.1:{port}", tmp_path / PROBED_KEY.partition("/")[0]
        await says(url, READY)
        probed.symlink_to(probed)  # a name that leads round in a circle can't be opened, by root either
        await says(url, LACKING_STORE)
        probed.unlink()
        await says(url, READY)


async def test_a_store_that_hangs_is_asked_once(tmp_path: Path) -> None:
    """However many probes come: each would hold a thread of the store."""
    probed = tmp_path / PROBED_KEY
    probed.parent.mkdir()
    os.mkfifo(probed)  # opening it waits for a writer
    async with health(readiness_of(tmp_path)) as port:
        url = f"http://127.0.0.1:{port}/readyz"
        answers = await asyncio.gather(*(get(url) for _ in range(3 * THREADS)))
        assert [answer.json() for answer in answers] == [LACKING_STORE] * len(answers)
        assert (await get(url.replace("readyz", "healthz"))).json() == {"alive": True}
        # One reader waits; a second one would wait for ever, as nobody writes again.
        writer = await asyncio.to_thread(os.open, probed, os.O_WRONLY)
        os.close(writer)
        probed.unlink()
        await says(url.removesuffix("/readyz"), READY)


async def test_a_port_in_use_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.INFO):
        port = taken.getsockname()[1]
        serving = asyncio.create_task(serve_health(HealthSettings(port=port), readiness_of(tmp_path)))

        async def address() -> str | None:
            found = ADDRESS.search(caplog.text)
            return found[1] if found else None

        url = await eventually(address, "the address of health checks in the log")
        assert port < int(url.rpartition(":")[2]) < port + PORTS
        assert (await get(f"{url}/healthz")).status_code == 200
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_without_a_port_the_worker_says_so_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await serve_health(HealthSettings(port=9564, host="192.0.2.1"), readiness_of(tmp_path))
    assert "no health checks: ports from 9564 on: 192.0.2.1:9595 can't be listened at" in caplog.text


async def test_a_probe_fails_unless_a_process_answers_and_all_answer_well(tmp_path: Path) -> None:
    readiness = readiness_of(tmp_path)
    async with health(readiness) as port:
        ports = range(port, port + 1)
        assert await asyncio.to_thread(faults, HOST, ports, "/readyz") == []
        readiness.draining = True
        (fault,) = await asyncio.to_thread(faults, HOST, ports, "/readyz")
        assert fault.startswith(f"port {port}: 503") and "draining" in fault
        assert await asyncio.to_thread(faults, HOST, ports, "/healthz") == []
    (fault,) = await asyncio.to_thread(faults, HOST, ports, "/healthz")
    assert fault == f"no worker process answers at {HOST}, ports {port} to {port}"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics", 404), ("GET", "/healthz/", 404), ("POST", "/readyz", 405)],
)
async def test_there_is_nothing_else(url: str, method: str, path: str, status: int) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        answer = await client.request(method, url + path)
    assert (answer.status_code, answer.json().keys()) == (status, {"error"})


@pytest.mark.attack("listeners", "a web page that looks at the health of a worker")
async def test_pages_and_foreign_names_are_refused(url: str) -> None:
    foreign: list[dict[str, str]] = [
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"user-agent": "Mozilla/5.0"},
        {"host": "rebound.example"},
    ]
    for headers in foreign:
        assert (await get(f"{url}/readyz", headers=headers)).status_code == 403
    for host in ("10.1.2.3:9564", "[fd00::1]:9564", "localhost"):
        assert (await get(f"{url}/readyz", headers={"host": host, "user-agent": "kube-probe/1.33"})).json()


@pytest.mark.attack("listeners", "a request body that a health check doesn't need")
async def test_bodies_are_bounded(url: str) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        answer = await client.request("GET", f"{url}/readyz", content=b" " * 100_000)
        assert answer.status_code == 413
        assert (await client.get(f"{url}/readyz")).json() == READY


@pytest.mark.slow  # for as long as headers may take
@pytest.mark.attack("listeners", "300 half-sent requests to a worker, which would make it seem dead")
async def test_half_sent_requests_hide_no_worker(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    half = (
        b"GET /healthz HTTP/1.1\r\nhost:",
        b"GET /readyz HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n",
    )
    connections = []
    for number in range(300):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(half[number % 2])
        connections.append((reader, writer))
    assert (await get(f"{url}/healthz")).status_code == 200
    for reader, writer in connections:
        async with asyncio.timeout(HEADER_SECONDS + PATIENCE_SECONDS):
            with suppress(ConnectionResetError):
                await reader.read()
        writer.close()
