"""Settings of stores in S3."""

from typing import ClassVar

from clotho.plugin_settings import PluginSettings


class S3Settings(PluginSettings):
    """Connection to a store in S3. Credentials come from AWS's own variables, files and roles."""

    plugin: ClassVar[str] = "s3"
    endpoint: str | None = None
    """URL of a server that isn't AWS's; None: what AWS's own configuration says."""
    region: str | None = None
    """The bucket's region. None: from AWS's own configuration, else us-east-1."""
    timeout: float = 15.0
    """Seconds without a byte after which an attempt counts as lost."""
