"""Settings of the durable Atropos API."""

from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt

from clotho.plugin_settings import PluginSettings


class AtroposApiSettings(PluginSettings):
    """Limits and access of the durable Atropos API."""

    plugin: ClassVar[str] = "atropos"
    max_body_bytes: PositiveInt = 128 * 2**20
    """Largest body of a request, as it is sent."""
    max_unpacked_bytes: PositiveInt = 128 * 2**20
    """Largest body of a request, decompressed. Reading one takes up to ten times as much memory."""
    body_seconds: PositiveFloat = 60.0
    """Seconds that a body may take to arrive."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which requests may ask for it, beside addresses, localhost and this machine's; `*`: any."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may send requests."""
    token_variable: str | None = None
    """The environment variable with the token that every request must show; None: no token."""
