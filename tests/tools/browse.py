"""Calls of the browser tools against a site of this machine."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clotho.plugin_settings import sections_of
from clotho.plugins.browser.settings import BrowserSettings
from tests.support import PATIENCE_SECONDS, eventually
from tests.tools.calls import SETTINGS, ToolCalls, fields
from tests.tools.site import Site

SECONDS = PATIENCE_SECONDS
SERVERS = ("tests.tools.patient_browser", "clotho.plugins.browser.process.server")
"""Where the patient one has ended by itself, a later call has started a worker's."""


class Browse:
    def __init__(self, calls: ToolCalls, site: Site) -> None:
        self.calls = calls
        self.site = site
        self.patience(SECONDS)

    def patience(self, seconds: float) -> None:
        """Set how long a page may take; with another value, the calls have a browser context of their own."""
        self.use(seconds=seconds)

    def use(self, **settings: Any) -> None:
        """Use a browser context with these settings."""
        browser = BrowserSettings(**{"allow": (self.site.host,), "seconds": SECONDS, **settings})
        self.calls.settings = SETTINGS.model_copy(
            update={"plugins": {**SETTINGS.plugins, **sections_of(browser)}}
        )

    async def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        done = await self.calls.run(f"browser_{name}", arguments)
        assert done.failure is None, done.content
        return fields(done)

    async def to(self, path: str) -> dict[str, Any]:
        return await self("navigate", url=f"{self.site.url}{path}")


def ref(shown: dict[str, Any], label: str) -> str:
    """The ref of the element with a label in a snapshot."""
    [line] = [
        line for line in str(shown["snapshot"]).splitlines() if f'"{label}"' in line and "[ref=" in line
    ]
    return line.partition("[ref=")[2].partition("]")[0]


def processes(what: str) -> set[int]:
    """The processes whose command line has a text in it."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if what in (process / "cmdline").read_text(errors="replace").replace("\0", " "):
                found.add(int(process.name))
    return found


async def end(folder: Path, programs: Iterable[str] = SERVERS) -> None:
    """Kill processes of a host's browser, and wait until Chromium is gone."""
    for program in programs:
        for process in processes(program) & processes(str(folder)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    async def gone() -> bool:
        return not processes(f"--user-data-dir={folder}")

    await eventually(gone, "the end of Chromium")
