"""TRL's own GRPOTrainer on rollouts of Clotho, on two CPU cores: `make test-trl`.

Not part of the suite: it needs an interpreter with TRL and torch (`TRL`: its path), which are several GB.
"""

import asyncio
import os
from pathlib import Path

from clotho_client.client import RolloutClient
from clotho_client.orders import GroupOrder

from clotho.plugins.trainers.trl import group_names
from examples.trl_tiny.chain import Chain, Training, chain_in
from examples.trl_tiny.comparison import play
from examples.trl_tiny.fates import Fates, fates_of, read_log
from examples.trl_tiny.task import draw_items, run_order

TRL = os.environ["TRL"]
KILLS = 8


async def test_a_group_that_failed_counts_in_no_mean(folder: Path) -> None:
    said: list[str] = []
    training = Training(steps=1, groups=3, group_size=2)
    async with chain_in(folder, TRL, training, said.append) as chain:
        await chain.api.start()
        failed = await asyncio.to_thread(cancel_first_group, chain)
        await chain.train((), said.append)
        fates = await fates_of(chain)
        (entry,) = read_log(chain.log)
    assert failed.startswith("s0-c0-p0-")
    assert (fates.ordered, fates.scored, fates.lost, fates.trained_twice) == (3, 2, 0, 0)
    assert 0 <= entry.reward <= 1


async def test_random_kills_lose_no_group_and_train_on_none_twice(folder: Path) -> None:
    said: list[str] = []
    training = Training()
    run = await play(folder, TRL, training, KILLS, said.append)
    groups = training.steps * training.groups
    assert run.fates == Fates(
        ordered=groups,
        scored=groups,
        acknowledged=groups,
        rollouts=groups * training.group_size,
        lost=0,
        trained_twice=0,
    ), said
    assert len(run.rewards) == training.steps
    assert set(run.kills) == {"trainer", "rollout API", "model server", "model worker", "tool worker"}


def cancel_first_group(chain: Chain) -> str:
    """Before the trainer orders it, under the name that it will have."""
    training = chain.training
    names = group_names(0, 0, 0, draw_items(training.groups, training.seed))
    name, item = next(iter(names.items()))
    with RolloutClient(chain.api_url) as client:
        client.open_run(
            training.run,
            run_order(chain.model.url, chain.model.model, training.group_size, training.seed),
        )
        client.order(training.run, name, GroupOrder(item=item, step=0))
        client.cancel(training.run, name)
    return name
