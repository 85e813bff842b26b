"""The same training twice, left alone and with parts killed on the way; evaluated before and after each."""

import asyncio
import time
from pathlib import Path

from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.evaluation.statistics import Estimate
from clotho.frozen_model import FrozenModel
from examples.grpo_tiny.chain import Training, chain_on
from examples.grpo_tiny.fates import Fates, fates_of
from examples.grpo_tiny.held_out import HeldOut, Size, also_trained_on, difference, evaluate
from examples.grpo_tiny.kills import Announce, Kill, draw_strikes, train
from examples.grpo_tiny.steps import StepReport
from tests.cluster import cluster_in

BEFORE, AFTER = "held-out-before", "held-out-after"


class Order(FrozenModel):
    """The settings of the comparison."""

    training: Training = Training()
    held_out: Size = Size()
    kills: int = 8
    """Number of kills in the second run."""
    seed: int = 0
    """Seed of the kills."""


class TrainingRun(FrozenModel):
    name: str
    before: HeldOut
    after: HeldOut
    rise: Estimate
    """Rise of the reward from before to after, over the same items."""
    also_trained_on: int
    """Held-out items that training drew, too."""
    started: float
    """Training, Unix time."""
    seconds: float
    """Seconds until the server had the last weights."""
    steps: tuple[StepReport, ...]
    kills: tuple[Kill, ...]
    fates: Fates


class Comparison(FrozenModel):
    order: Order
    undisturbed: TrainingRun
    killed: TrainingRun
    killed_more: Estimate
    """The final reward of the killed run's policy less that of the undisturbed one's, over the same items."""


async def compare(folder: Path, order: Order, announce: Announce) -> Comparison:
    """Both runs, one after the other, each with workers, a store and a model's server of its own in `folder`."""
    server = TemporalServer(
        await temporal_binary(announce), folder / "temporal.log", ui_port=None, db=folder / "temporal.db"
    )
    async with server as temporal:
        undisturbed = await training_run(temporal, folder, "undisturbed", order, 0, announce)
        killed = await training_run(temporal, folder, "killed", order, order.kills, announce)
    return Comparison(
        order=order,
        undisturbed=undisturbed,
        killed=killed,
        killed_more=difference(undisturbed.after, killed.after),
    )


async def training_run(
    temporal: TemporalServer, folder: Path, name: str, order: Order, kills: int, announce: Announce
) -> TrainingRun:
    async with cluster_in(temporal, folder / name, name) as cluster:
        workers = {
            "model worker": await cluster.start_worker("llm"),
            "tool worker": await cluster.start_worker("workflows,tools"),
        }
        async with chain_on(cluster, order.training, workers) as chain:
            announce(f"{name}: logs in {cluster.folder}")
            before = await evaluate(chain, BEFORE, order.held_out)
            announce(f"{name}: held out, before {shown(before.score)}")
            strikes = draw_strikes(tuple(chain.parts), kills, order.training.steps, order.seed)
            started = time.time()
            struck = await train(chain, strikes, announce)
            seconds = time.time() - started
            announce(f"{name}: {order.training.steps} steps in {seconds:.0f} s")
            after = await evaluate(chain, AFTER, order.held_out)
            announce(f"{name}: held out, after {shown(after.score)}")
            return TrainingRun(
                name=name,
                before=before,
                after=after,
                rise=difference(before, after),
                also_trained_on=await also_trained_on(chain, (BEFORE, AFTER)),
                started=started,
                seconds=seconds,
                steps=tuple(await asyncio.to_thread(chain.steps.reports)),
                kills=struck,
                fates=await fates_of(chain),
            )


def shown(estimate: Estimate) -> str:
    return f"{estimate.mean:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
