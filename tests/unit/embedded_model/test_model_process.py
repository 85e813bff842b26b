"""The server as a process: starting, ending, and clients that leave."""

import asyncio
import json
import socket
import sys
import time
from pathlib import Path

import httpx
import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.errors import ModelUnavailable
from tests.support import PATIENCE_SECONDS

ENDLESS = {"token_ids": [300], "sampling_params": {"ignore_eos": True, "seed": 1}}


async def until_idle(http: httpx.AsyncClient) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (await http.get("/health")).json()["open_requests"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


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
    assert line.startswith(f"model server: 127.0.0.1:{port}: [Errno 98] Address already in use")


async def test_failure_to_start_is_told_with_the_log(tmp_path: Path) -> None:
    server = EmbeddedModelServer(tmp_path / "log", weights=tmp_path / "nowhere")
    with pytest.raises(ModelUnavailable, match="nowhere"):
        await server.start()
    assert server.pid is None


async def test_kill_restart_on_the_same_port_and_stop_under_load(tmp_path: Path) -> None:
    server = EmbeddedModelServer(tmp_path / "log")
    await server.start()
    url = server.url
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as http:
        lost = asyncio.ensure_future(http.post("/inference/v1/generate", json=ENDLESS))
        while not (await http.get("/health")).json()["open_requests"]:
            await asyncio.sleep(0.005)
        await server.kill()
        with pytest.raises(httpx.TransportError):
            await lost
        await server.start()
        assert server.url == url
        requests = [
            asyncio.ensure_future(http.post("/inference/v1/generate", json=ENDLESS)) for _ in range(4)
        ]
        stream = asyncio.ensure_future(http.post("/inference/v1/generate", json=ENDLESS | {"stream": True}))
        while (await http.get("/health")).json()["open_requests"] < 5:
            await asyncio.sleep(0.005)
        server.process.terminate()
        assert [answer.status_code for answer in await asyncio.gather(*requests)] == [503] * 4
        last = json.loads((await stream).text.rstrip().rpartition("data: ")[2])
        assert last["error"]["type"] == "service_unavailable"
        assert await asyncio.wait_for(server.process.wait(), PATIENCE_SECONDS) == 0
        await server.stop()


async def test_a_client_that_leaves_is_not_computed_for(http: httpx.AsyncClient) -> None:
    began = time.monotonic()
    await http.post("/inference/v1/generate", json=ENDLESS)
    whole = time.monotonic() - began
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/inference/v1/generate", json=ENDLESS, timeout=0.1)
    await until_idle(http)
    async with http.stream("POST", "/inference/v1/generate", json=ENDLESS | {"stream": True}) as response:
        async for _ in response.aiter_lines():
            break
        assert (await http.get("/health")).json()["open_requests"] == 1
    left = time.monotonic()
    await until_idle(http)
    assert time.monotonic() - left < whole / 2


async def test_a_long_prompt_does_not_hold_up_others(http: httpx.AsyncClient) -> None:
    """A thousand-token prompt joins a running stream, whose tokens keep coming."""
    numbers = [index % 500 + 20 for index in range(1000)]
    arrivals, asked, started = [], None, 0.0
    async with http.stream("POST", "/inference/v1/generate", json=ENDLESS | {"stream": True}) as response:
        async for line in response.aiter_lines():
            if line:
                arrivals.append(time.monotonic())
            if len(arrivals) == 5 and asked is None:
                prompt = {"token_ids": numbers, "sampling_params": {"max_tokens": 1}}
                asked, started = (
                    asyncio.ensure_future(http.post("/inference/v1/generate", json=prompt)),
                    time.monotonic(),
                )
            if asked is not None and asked.done():
                break
    during = [moment for moment in arrivals if moment > started]
    assert len(during) >= 5
