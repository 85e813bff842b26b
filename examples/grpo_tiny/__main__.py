"""`python -m examples.grpo_tiny`: train a damaged policy back to its tasks, through every part, killing some."""

import argparse
import asyncio
import sys
from pathlib import Path

from clotho.embedded.model.bundled import BUNDLED
from examples.grpo_tiny import chain, weights
from examples.grpo_tiny.plot import plot
from examples.grpo_tiny.train import StepReport


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.grpo_tiny", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".clotho/grpo-tiny"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--damage", type=float, default=0.1, help="noise on matrices, of their entries' spread"
    )
    parser.add_argument("--kills", type=int, default=0, help="how many SIGKILLs on the way")
    parser.add_argument("--seconds-between", type=float, default=20.0, help="kills, on average")
    parser.add_argument("--seed", type=int, default=0, help="of the damage and the kills")
    asked = parser.parse_args()
    folder: Path = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    weights.start(BUNDLED, folder / "weights", asked.damage, asked.seed)

    async def train() -> None:
        async with chain.running(folder, asked.steps, say) as running:
            say(f"running; logs in {folder / 'logs'}")
            await chain.until_trained(running, asked.kills, asked.seconds_between, asked.seed, say)

    asyncio.run(train())
    reports = [StepReport.model_validate_json(line) for line in (folder / "metrics.jsonl").open()]
    (folder / "scores.svg").write_text(plot({f"{asked.kills} kills": reports}))
    say(f"scores in {folder / 'metrics.jsonl'}, drawn in {folder / 'scores.svg'}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
