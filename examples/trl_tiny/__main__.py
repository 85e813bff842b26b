"""`python -m examples.trl_tiny --python TRL_PYTHON`: train the damaged policy with TRL, with kills on the way."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from clotho.errors import ClothoError
from examples.grpo_tiny.__main__ import say, working_folder
from examples.grpo_tiny.comparison import shown
from examples.grpo_tiny.held_out import Size, difference, evaluate
from examples.grpo_tiny.kills import draw_strikes
from examples.trl_tiny.chain import Training, chain_in
from examples.trl_tiny.fates import fates_of

LOG = "log.jsonl"
BEFORE, AFTER = "held-out-before", "held-out-after"


def main() -> None:
    made = argparse.ArgumentParser(prog="python -m examples.trl_tiny", description=__doc__)
    made.add_argument("--python", required=True, help="the interpreter that has TRL")
    made.add_argument("--steps", type=int, default=8)
    made.add_argument("--rate", type=float, default=3e-4, help="of learning")
    made.add_argument("--groups", type=int, default=4, help="of each step")
    made.add_argument("--group-size", type=int, default=8)
    made.add_argument("--kills", type=int, default=0)
    made.add_argument("--seed", type=int, default=0, help="of the damage, the items and the kills")
    made.add_argument("--held-out", type=int, default=32, help="items of the evaluations before and after")
    made.add_argument(
        "--folder", type=Path, help="a new one to leave everything in; default: a temporary one"
    )
    asked = made.parse_args()
    training = Training(
        python=asked.python,
        steps=asked.steps,
        rate=asked.rate,
        group_size=asked.group_size,
        groups=asked.groups,
        seed=asked.seed,
    )
    try:
        with working_folder(asked.folder) as folder:
            asyncio.run(train(folder, training, asked.kills, Size(items=asked.held_out)))
    except ClothoError as error:
        sys.exit(f"examples.trl_tiny: {error}")


async def train(folder: Path, training: Training, kills: int, held_out: Size) -> None:
    async with chain_in(folder, training, say) as chain:
        before = await evaluate(chain, BEFORE, held_out)
        strikes = draw_strikes(tuple(chain.parts), kills, training.steps, training.seed)
        seconds = await chain.train(strikes, say)
        for entry in map(json.loads, (chain.output / LOG).read_text().splitlines()):
            if "reward" in entry:
                say(line(entry))
        after = await evaluate(chain, AFTER, held_out)
        say(
            f"{training.steps} steps in {seconds:.0f} s, {len(strikes)} kills; groups: {await fates_of(chain)}"
        )
        say(f"held out, before {shown(before.score)}, after {shown(after.score)}")
        say(f"rise, item by item: {shown(difference(before, after))}; weights {after.version}")


def line(entry: dict[str, Any]) -> str:
    step, reward = entry["step"], entry["reward"]
    return f"step {step}: reward {reward:.3f}, gradient norm {entry['grad_norm']:.2f}"


if __name__ == "__main__":
    main()
