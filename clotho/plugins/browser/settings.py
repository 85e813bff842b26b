"""Settings of a run's browser: the addresses that its pages may reach."""

import re
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from clotho.plugin_settings import RunPluginSettings

HOST = re.compile(r"(\*|(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:\d{1,5})?")
MOST_DOWNLOADS_MB = 16
SITE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class BrowserSettings(RunPluginSettings):
    """Settings of the browser tools. Without an entry in `allow` or `sites`, no page can be opened."""

    plugin: ClassVar[str] = "browser"

    allow: tuple[str, ...] = ()
    """Hosts that pages may reach: `example.org`, `*.example.org`, `127.0.0.1:8000`, or `*` for all public ones.

    A private, loopback or link-local address is reached only where it is named itself, or as `localhost`.
    """
    sites: dict[str, str] = {}
    """Host names served from the sandbox, and the command that answers one HTTP request on its standard input."""
    seconds: float = Field(default=30.0, gt=0)
    """Seconds that a page may take to load."""
    downloads_mb: Annotated[float, Field(ge=0, le=MOST_DOWNLOADS_MB)] = 0.0
    """MiB of files that one call may download into `downloads` of the sandbox's working directory; 0: none."""

    @field_validator("allow")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [host for host in value if not HOST.fullmatch(host)]:
            raise ValueError(f"no host: {', '.join(map(repr, wrong))}; write HOST, HOST:PORT, *.HOST or *")
        return value

    @field_validator("sites")
    @classmethod
    def _names(cls, value: dict[str, str]) -> dict[str, str]:
        if wrong := [name for name in value if not SITE.fullmatch(name)]:
            raise ValueError(f"no host name: {', '.join(map(repr, wrong))}")
        return value
