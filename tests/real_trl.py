"""TRL's own GRPOTrainer on rollouts of Clotho, on two CPU cores: `make test-trl`.

Not part of the suite: it needs an interpreter with TRL and torch (`TRL`: its path), which are several GB.
"""

import json
import os
from pathlib import Path
from statistics import mean

from clotho.embedded.model.checkpoint import read_checkpoint
from clotho.runs.groups import scored_groups
from examples.grpo_tiny.kills import Strike
from examples.trl_tiny.chain import Training, chain_in
from examples.trl_tiny.fates import fates_of

SHORT = Training(python=os.environ["TRL"], steps=4, groups=2, group_size=4)
STRIKES = (
    Strike("trainer", step=2, delay=1.0),
    Strike("rollout API", step=3),
    Strike("model server", step=4),
)


async def test_training_goes_on_over_kills_and_every_group_is_sampled_once(folder: Path) -> None:
    said: list[str] = []
    async with chain_in(folder, SHORT, said.append) as chain:
        await chain.train(STRIKES, said.append)
        fates = await fates_of(chain)
        groups = await scored_groups(chain.cluster.open_journal(), SHORT.run)
        log = [json.loads(line) for line in (chain.output / "log.jsonl").read_text().splitlines()]
        served = read_checkpoint(chain.weights).version
    assert (fates.ordered, fates.scored, fates.acknowledged, fates.rollouts) == (8, 8, 8, 32)
    assert served == "4"
    rewards = {entry["step"]: entry["reward"] for entry in log if "reward" in entry}
    for step in range(SHORT.steps):
        began = f"{SHORT.run}/i-s{step}-c0-"
        scores = [one.score for name, entry in groups if name.startswith(began) for one in entry.siblings]
        assert len(scores) == SHORT.groups * SHORT.group_size
        assert abs(rewards[step + 1] - mean(scores)) < 1e-6
