"""Chromium, and the viewer as users start it."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from clotho.plugins.browser.launch import NO_CHROMIUM, chromium
from clotho.processes.child import ChildProcess
from tests.cli.command import CLOTHO
from tests.support import PATIENCE_SECONDS, eventually

"""For an answer of the viewer or the browser, on a machine that does much else."""
StartViewer = Callable[..., Awaitable[str]]


@pytest.fixture
async def view(tmp_path: Path) -> AsyncIterator[StartViewer]:
    """Starts `clotho view` of a store, by default without a token; returns its address."""
    async with AsyncExitStack() as stack:
        started = 0

        async def start(store: Path | str, *options: str, guard: str = "--no-token", **variables: str) -> str:
            nonlocal started
            started += 1
            log = tmp_path / f"view-{started}.log"
            variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), **variables}
            assignments = [f"{name}={value}" for name, value in variables.items()]
            command = [CLOTHO, "view", "--port", "0", "--store", str(store), *options]
            command += [guard] if guard else []
            viewer = ChildProcess(["env", *assignments, *command], log)
            stack.push_async_callback(viewer.stop)
            await viewer.start()

            async def address() -> str | None:
                said = log.read_text()
                return said.partition(" at ")[2].partition(";")[0] if "; Ctrl-C" in said else None

            return await eventually(address, f"the viewer's address in {log}", PATIENCE_SECONDS)

        yield start


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if (program := chromium()) is None:
        pytest.skip(NO_CHROMIUM)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=program, args=arguments, timeout=PATIENCE_SECONDS * 1_000
        )
        yield browser
        await browser.close()
