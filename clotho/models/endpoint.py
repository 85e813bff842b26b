"""The endpoint of a run's model."""

import math
from collections.abc import Callable
from typing import Protocol

from clotho_client.orders import Endpoint as OrderedEndpoint

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import derived_seed
from clotho.models.backend import ModelBackend, checked_base_url
from clotho.models.rendering.rendering import Rendering

SEEDS = 1 << 63


class Endpoint(OrderedEndpoint, FrozenModel):
    """The servers of a run's model: may change between restarts, the last entry counts."""

    @property
    def servers(self) -> tuple["Endpoint", ...]:
        """Each server as an endpoint of its own."""
        urls = (self.base_url, *self.more_urls)
        alone = {"more_urls": (), "weights": ()}
        return tuple(self.model_copy(update={"base_url": url, **alone}) for url in urls)

    def server_for(
        self, rollout: str, attempt: int, usable: Callable[["Endpoint"], bool] = lambda _: True
    ) -> "Endpoint":
        """The rollout's own server, which has its prompts cached; the next one at every further attempt.

        Servers that aren't usable are left out while there are others: their rollouts are spread over those.
        """
        servers, weights = self.servers, self.weights or (1.0,) * (1 + len(self.more_urls))

        def distance(place: int) -> float:
            # weighted rendezvous hashing: a server that joins or leaves moves no rollouts but its own share
            chance = (derived_seed(rollout, servers[place].base_url) + 0.5) / SEEDS
            return -math.log(chance) / weights[place]

        order = [servers[place] for place in sorted(range(len(servers)), key=distance)]
        usable_ones = list(filter(usable, order)) if len(order) > 1 else order
        candidates = usable_ones or order
        return candidates[(attempt - 1) % len(candidates)]


def parsed_servers(text: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The URLs and weights in `URL[=WEIGHT],…`; raises InvalidInput for what is none."""
    urls, weights = [], []
    for part in text.split(","):
        url, equals, weight = part.strip().partition("=")
        try:
            weights.append(float(weight) if equals else 1.0)
        except ValueError:
            weights.append(math.nan)
        if not 0 < weights[-1] < math.inf:
            raise InvalidInput(
                "the weight of a model server is a number above 0, as in http://host:8000/v1=2"
            )
        urls.append(checked_base_url(url))
    if len(set(urls)) < len(urls):
        raise InvalidInput("a model server is named twice")
    return tuple(urls), tuple(weights) if len(set(weights)) > 1 else ()


class ModelServers(Protocol):
    """Opens the backends of model servers; connections are shared between turns."""

    def at(self, endpoint: Endpoint, model: str, rendering: Rendering | None) -> ModelBackend:
        """The backend of `model` at an endpoint; without a rendering, in chat mode.

        Raises InvalidInput for an endpoint of the other mode.
        """
