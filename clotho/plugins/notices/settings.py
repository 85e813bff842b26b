"""Settings of notices."""

from typing import ClassVar

from clotho.plugin_settings import PluginSettings


class NotifySettings(PluginSettings):
    """Who is told that a run has paused itself or has ended; secrets are named by environment variable."""

    plugin: ClassVar[str] = "notices"
    command: tuple[str, ...] = ()
    """A program and its arguments, run on the worker's machine with the notice in JSON as its standard input."""
    webhook_variable: str | None = None
    """Environment variable with the URL that the notice is sent to, as a POST of JSON."""
    webhook_token_variable: str | None = None
    """Environment variable with the token of such requests: `Authorization: Bearer …`."""
