"""The endpoint of a run's model."""

from clotho.frozen_model import FrozenModel
from clotho.identifiers.hashed import derived_seed
from clotho.models.backend import Inference


class Endpoint(FrozenModel):
    """The servers of a run's model: may change between restarts, the last entry counts."""

    base_url: str
    more_urls: tuple[str, ...] = ()
    """URLs of further servers of the same model."""
    api_key_variable: str | None = None
    """The environment variable that holds the key, in the processes that call models."""
    inference: Inference = Inference.CHAT

    @property
    def servers(self) -> tuple["Endpoint", ...]:
        """Each server as an endpoint of its own."""
        urls = (self.base_url, *self.more_urls)
        return tuple(self.model_copy(update={"base_url": url, "more_urls": ()}) for url in urls)

    def server_for(self, rollout: str, attempt: int) -> "Endpoint":
        """The rollout's own server, which has its prompts cached; the next one at every further attempt."""
        servers = self.servers
        return servers[(derived_seed(rollout) + attempt - 1) % len(servers)]
