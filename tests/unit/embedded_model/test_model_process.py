"""The server as a process: starting, ending, and clients that leave."""

import asyncio
import json
import shutil
import socket
import sys
from pathlib import Path

import httpx
import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED
from clotho.errors import ModelUnavailable
from tests.support import PATIENCE_SECONDS, eventually

ENDLESS = {"token_ids": [300], "sampling_params": {"ignore_eos": True, "seed": 1}}
GENERATE = "/inference/v1/generate"
CONTEXT = 100_000
"""A generation that fills it takes longer than any test waits."""


@pytest.fixture
def endless(tmp_path: Path) -> EmbeddedModelServer:
    """A server whose generations end only when they are ended."""
    weights = Path(shutil.copytree(BUNDLED, tmp_path / "weights"))
    config = json.loads((weights / "config.json").read_text())
    (weights / "config.json").write_text(json.dumps(config | {"max_position_embeddings": CONTEXT}))
    return EmbeddedModelServer(tmp_path / "log", weights=weights)


async def until_open(http: httpx.AsyncClient, requests: int) -> None:
    async def are_open() -> bool:
        return int((await http.get("/health")).json()["open_requests"]) == requests

    await eventually(are_open, f"{requests} open requests")


async def test_a_port_in_use_is_a_one_line_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "clotho.embedded.model",
            "--port",
            str(port),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, error = await process.communicate()
    assert (process.returncode, output) == (1, b"")
    (line,) = error.decode().splitlines()
    assert line.startswith(f"model server: 127.0.0.1:{port} can't be listened at: Address already in use")


async def test_failure_to_start_is_told_with_the_log(tmp_path: Path) -> None:
    server = EmbeddedModelServer(tmp_path / "log", weights=tmp_path / "nowhere")
    with pytest.raises(ModelUnavailable, match="nowhere"):
        await server.start()
    assert server.pid is None


async def test_kill_restart_on_the_same_port_and_stop_under_load(endless: EmbeddedModelServer) -> None:
    server = endless
    await server.start()
    url = server.url
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as http:
        lost = asyncio.ensure_future(http.post(GENERATE, json=ENDLESS))
        await until_open(http, 1)
        await server.kill()
        with pytest.raises(httpx.TransportError):
            await lost
        await server.start()
        assert server.url == url
        requests = [asyncio.ensure_future(http.post(GENERATE, json=ENDLESS)) for _ in range(4)]
        stream = asyncio.ensure_future(http.post(GENERATE, json=ENDLESS | {"stream": True}))
        await until_open(http, 5)
        server.process.terminate()
        assert [answer.status_code for answer in await asyncio.gather(*requests)] == [503] * 4
        last = json.loads((await stream).text.rstrip().rpartition("data: ")[2])
        assert last["error"]["type"] == "service_unavailable"
        assert await asyncio.wait_for(server.process.wait(), PATIENCE_SECONDS) == 0
        await server.stop()


async def test_a_client_that_leaves_is_not_computed_for(endless: EmbeddedModelServer) -> None:
    async with endless, httpx.AsyncClient(base_url=endless.url, timeout=PATIENCE_SECONDS) as http:
        leaving = asyncio.ensure_future(http.post(GENERATE, json=ENDLESS))
        await until_open(http, 1)
        leaving.cancel()
        await until_open(http, 0)
        async with http.stream("POST", GENERATE, json=ENDLESS | {"stream": True}) as response:
            async for _ in response.aiter_lines():
                break
            assert (await http.get("/health")).json()["open_requests"] == 1
        await until_open(http, 0)
