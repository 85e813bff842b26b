"""What the browser can't reach: the files that its host runs, and addresses of its host's network."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from clotho.plugins.browser.launch import lacking, write_program
from clotho.plugins.browser.process.policy import NetworkPolicy, Refused
from clotho.plugins.browser.process.proxy import FilteringProxy
from tests.support import PATIENCE_SECONDS

PRIVATE = "10.1.2.3"


@pytest.mark.skipif(lacking() is not None, reason=str(lacking()))
def test_the_program_can_replace_neither_its_launcher_nor_a_socket(tmp_path: Path) -> None:
    folder, programs = tmp_path / "browser", tmp_path / "programs"
    folder.mkdir()
    programs.mkdir()
    script = programs / "chrome"
    script.write_text(
        f"#!/bin/sh\necho x > {folder}/chromium\necho x > {folder}/socket\n"
        f"echo x > {folder}/ports/20000\necho x > {folder}/tmp/written\n"
    )
    script.chmod(0o755)
    program = write_program(folder, script, 1)
    written = program.read_text()
    subprocess.run([program], check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    assert program.read_text() == written
    assert {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()} == {
        "chromium",
        "tmp/written",
    }


async def resolved(host: str, port: int) -> list[str]:
    return [PRIVATE]


async def test_a_name_leads_to_no_private_address_though_it_is_allowed() -> None:
    policy = NetworkPolicy(("shop.example", PRIVATE, "localhost:80"), resolved)
    with pytest.raises(Refused):
        await policy.addresses("shop.example", 80)
    assert await policy.addresses(PRIVATE, 80) == [PRIVATE]
    assert await policy.addresses("localhost", 80) == [PRIVATE]


@pytest.mark.parametrize("target", [b"http://[/", b"http://shop:port/", b"\xff"])
async def test_a_proxy_refuses_what_is_no_url(target: bytes, tmp_path: Path) -> None:
    proxy = FilteringProxy(tmp_path / "proxy", NetworkPolicy(()), {})
    await proxy.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "proxy")
    writer.write(b"GET " + target + b" HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
    writer.close()
    await proxy.stop()


async def test_a_proxy_that_is_started_again_ends_its_earlier_connections(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(host: str, request: bytes) -> bytes:
        asked.set()
        return await asyncio.Future[bytes]()

    proxy = FilteringProxy(tmp_path / "proxy", NetworkPolicy(()), {"shop": never})
    await proxy.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "proxy")
    writer.write(b"GET http://shop/ HTTP/1.1\r\n\r\n")
    await asked.wait()
    await proxy.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await reader.read() == b""
    writer.close()
    await proxy.stop()
