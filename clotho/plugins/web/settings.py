"""Settings of a run's web tools: a provider, or an offline corpus in its place."""

from typing import ClassVar, Literal

from pydantic import model_validator

from clotho.plugin_settings import RunPluginSettings


class WebSettings(RunPluginSettings):
    """Settings of `web_search` and `web_extract`; without them, neither is offered."""

    plugin: ClassVar[str] = "web"

    provider: Literal["brave", "exa", "firecrawl", "searxng", "tavily", "offline"]
    """What `web_search` asks."""
    url: str | None = None
    """The provider's address; None: its usual one, which `searxng` doesn't have."""
    key: str | None = None
    """The environment variable of the workers with its key; None: the provider's usual one."""
    corpus: str | None = None
    """For `offline`: a folder of text files, or a JSONL file with `url`, `title` and `text` on each line."""

    @model_validator(mode="after")
    def _complete(self) -> "WebSettings":
        if (self.provider == "offline") != (self.corpus is not None):
            raise ValueError("provider offline needs a corpus, and no other one has one")
        if self.provider == "searxng" and self.url is None:
            raise ValueError("provider searxng needs the url of an installation")
        return self
