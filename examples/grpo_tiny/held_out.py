"""The policy's reward on held-out items, sampled as in training."""

import statistics
from collections.abc import Sequence
from typing import Protocol

import httpx

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import TINY
from clotho.errors import Unavailable
from clotho.evaluation.statistics import Estimate, mean_difference, mean_of_items
from clotho.frozen_model import FrozenModel
from clotho.models.backend import Inference
from clotho.models.rendering.rendering import Rendering
from clotho.runs.groups import scored_groups
from clotho.runs.ledger import Ledger
from examples.grpo_tiny.chain import ENVIRONMENT, Chain
from tests.cluster import Cluster

SEED = 20_000
"""Seed of the environment, which makes it draw other tasks than those trained on."""
HEALTH_SECONDS = 60.0
"""Seconds in which the server says which weights it samples from."""


class Size(FrozenModel):
    items: int = 48
    rollouts: int = 4
    """Number of rollouts of each item."""


class HeldOut(FrozenModel):
    """One evaluation."""

    version: str
    """Version of the weights."""
    by_item: tuple[float, ...]
    """Mean score of each item's rollouts."""
    score: Estimate
    """Over items."""


class Serving(Protocol):
    """A policy's server, and the workers that roll it out."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def model(self) -> EmbeddedModelServer: ...


async def evaluate(chain: Serving, run: str, size: Size) -> HeldOut:
    """The same items in every chain; in runs of one name, with the same seeds too."""
    handle = await chain.cluster.start(
        run,
        f"{chain.model.url}/v1",
        environment=ENVIRONMENT,
        model=TINY,
        groups=size.items,
        group_size=size.rollouts,
        inference=Inference.TOKENS,
        rendering=Rendering(),
        temperature=1.0,
        overrides={"seed": SEED},
    )
    if (failed := (await handle.result()).failed) > 0:
        raise Unavailable(f"{failed} of {size.items} held-out groups could not be rolled out")
    groups = await scored_groups(chain.cluster.open_journal(), run)
    scores = [[sibling.score for sibling in group.siblings] for _, group in groups]
    return HeldOut(
        version=await sampled_version(chain),
        by_item=tuple(map(statistics.fmean, scores)),
        score=mean_of_items(scores),
    )


async def sampled_version(chain: Serving) -> str:
    """The version of the weights that the server samples from."""
    async with httpx.AsyncClient(base_url=chain.model.url, timeout=HEALTH_SECONDS) as http:
        health = (await http.get("/health")).raise_for_status().json()
    return str(health["weight_version"])


def difference(one: HeldOut, other: HeldOut) -> Estimate:
    """The reward of `other` less that of `one`, paired by item, so that hard items don't widen the interval."""
    return mean_difference(one.by_item, other.by_item)


async def also_trained_on(chain: Chain, evaluations: Sequence[str]) -> int:
    """The number of held-out items that the training run has drawn, too."""
    journal = chain.cluster.open_journal()
    drawn = {claim.item["prompt"] for claim in await Ledger(journal, chain.training.run).load()}
    held_out = {group.item["prompt"] for run in evaluations for _, group in await scored_groups(journal, run)}
    return len(drawn & held_out)
