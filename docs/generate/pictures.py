"""`python -m docs.generate.pictures`: the README's pictures, taken of a real run.

They show its terminal, where a worker process is killed on the way, and one of its rollouts in the viewer and in
Temporal's UI. Needs Chromium.
"""

import asyncio
import os
import re
import signal
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from playwright.async_api import FloatRect, ViewportSize, async_playwright
from rich.console import Console
from temporalio.client import Client

from clotho.cli.follow import count_now
from clotho.cli.options import open_journal
from clotho.cli.progress import View, progress_line
from clotho.cli.summary import show_summary
from clotho.cli.waiting import until_served
from clotho.config import Settings, load_settings
from clotho.embedded.services import Ports, Services, local_services
from clotho.evaluation.summary import read_summary
from clotho.journal import Journal
from clotho.models.endpoint import Endpoint
from clotho.plugins.browser.launch import chromium
from clotho.plugins.demo.kill_processes import worker_processes
from clotho.processes.child import ChildProcess
from clotho.runs.campaigns import start_campaign
from clotho.runs.counts import RunCounter
from clotho.runs.groups import scored_groups
from clotho.runs.request import RunRequest, run_manifest
from clotho.runs.states import current_progress
from clotho.temporal.connection import connect
from clotho.temporal.search_attributes import workflow_link

PICTURES = Path(__file__).parents[1] / "pictures"
RUN, GROUPS, SIZE = "first", 16, 4
LINE_SECONDS = 3.0
KILL_AFTER = 2
"""Lines of progress before a worker process is killed."""
COLUMNS = 128
PAGE = ViewportSize(width=1_400, height=1_700)
TOP = FloatRect(x=0, y=0, width=1_400, height=1_000)
EVENTS = FloatRect(x=62, y=690, width=1_338, height=900)
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Fonts that the picture would load from elsewhere; it falls back to the reader's own."""


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        settings = load_settings()
        async with local_services(settings, Ports.free(), lambda line: None, asyncio.Event()) as services:
            address = settings.temporal.model_copy(update={"address": services.temporal.address})
            client, journal = await connect(address), await open_journal(settings)
            await until_served(client, services.worker)
            console = Console(record=True, width=COLUMNS, force_terminal=True, markup=False, highlight=False)
            await record(console, settings, services, client, journal)
            drawn = console.export_svg(title="clotho")
            (PICTURES / "terminal.svg").write_text(FONTS.sub("", drawn))
            await photograph(settings, services, client, journal)


async def record(
    console: Console, settings: Settings, services: Services, client: Client, journal: Journal
) -> None:
    """Print a run as `clotho run` does in a pipe, and kill a process of the workers on the way."""
    model = services.model_url
    console.print(f"$ clotho run file_tasks --run {RUN} --groups {GROUPS} --model {model}", style="bold")
    manifest = run_manifest("file_tasks", RUN, services.model.model, group_size=SIZE)
    order = RunRequest(manifest=manifest, endpoint=Endpoint(base_url=model), groups=GROUPS, max_open_groups=8)
    handle = await start_campaign(client, journal, order)
    counter, lines, said, began = RunCounter(journal, client, RUN), 0, "", time.monotonic()
    result = asyncio.ensure_future(handle.result())
    while not result.done():
        await asyncio.wait([result], timeout=LINE_SECONDS)
        progress = await current_progress(handle)
        if progress is not None and progress.groups:
            line = progress_line(View(progress, await count_now(counter), SIZE))
            if line != said:
                console.print(f"0:{round(time.monotonic() - began):02} {line}")
                lines, said = lines + 1, line
        if lines == KILL_AFTER:
            lines += 1
            assert services.worker.pid is not None
            victim = worker_processes(services.worker.pid)[0]
            os.kill(victim, signal.SIGKILL)
            console.print(f"$ kill -9 {victim}    # a worker process, in another terminal", style="bold red")
    await result
    show_summary(console, settings, await read_summary(journal, RUN, client))


async def photograph(settings: Settings, services: Services, client: Client, journal: Journal) -> None:
    """The same rollout in the viewer and in Temporal's UI: one with a command and a reward."""
    rollouts = [one for _, entry in await scored_groups(journal, RUN) for one in entry.siblings]
    chosen = max(rollouts, key=lambda one: (one.score, one.tool_calls)).rollout
    async with AsyncExitStack() as stack:
        log = settings.folder / "view.log"
        viewer = ChildProcess(["clotho", "view", "--port", "0", "--no-token"], log)
        stack.push_async_callback(viewer.stop)
        await viewer.start()
        await asyncio.to_thread(_wait_for, log, "; Ctrl-C")
        address = log.read_text().partition(" at ")[2].partition(";")[0]
        driver = await stack.enter_async_context(async_playwright())
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await driver.chromium.launch(executable_path=chromium(), args=arguments)
        pages = {
            "viewer.png": f"{address.rstrip('/')}/r/{chosen}",
            "temporal.png": workflow_link(services.ui, client.namespace, chosen),
        }
        for name, url in pages.items():
            page = await browser.new_page(viewport=PAGE)
            await page.goto(url, wait_until="networkidle")
            # Of Temporal's page the events are of interest, which are below what the workflow was given.
            await page.screenshot(path=PICTURES / name, clip=EVENTS if name == "temporal.png" else TOP)
        await browser.close()


def _wait_for(log: Path, text: str) -> None:
    while text not in log.read_text():
        time.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
