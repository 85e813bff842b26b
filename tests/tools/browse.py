"""Calls of the browser tools against a site of this machine."""

from typing import Any

from clotho.tools.browser.settings import BrowserSettings
from tests.tools.calls import SETTINGS, ToolCalls, fields
from tests.tools.site import Site

SECONDS = 20.0


class Browse:
    def __init__(self, calls: ToolCalls, site: Site) -> None:
        self.calls = calls
        self.site = site
        self.patience(SECONDS)

    def patience(self, seconds: float) -> None:
        """Set how long a page may take; with another value, the calls have a browser context of their own."""
        settings = BrowserSettings(allow=(self.site.host,), seconds=seconds)
        self.calls.settings = SETTINGS.model_copy(update={"browser": settings})

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
