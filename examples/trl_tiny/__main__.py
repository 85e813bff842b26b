"""`python -m examples.trl_tiny --python TRL_PYTHON`: train with TRL, with and without kills, and compare."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from clotho.errors import ClothoError
from examples.grpo_tiny.__main__ import say, working_folder
from examples.grpo_tiny.whole_files import write_whole
from examples.trl_tiny.chain import Training
from examples.trl_tiny.comparison import Comparison, play, table

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
RESULTS = Path(".clotho/trl-tiny.json")


def main() -> None:
    options = parser()
    asked = options.parse_args()
    if not 0 < asked.kills < asked.steps:
        options.error(
            "each kill comes in a step of its own after the first: give from 1 to fewer --kills than --steps"
        )
    trainings = [
        Training(
            seed=seed, steps=asked.steps, rate=asked.rate, groups=asked.groups, group_size=asked.group_size
        )
        for seed in asked.seeds
    ]
    missing = Comparison.read(asked.results).missing(trainings)
    try:
        compare(asked.results, asked.python, missing[: asked.runs], asked.kills)
    except ClothoError as error:
        sys.exit(f"examples.trl_tiny: {error}")
    if asked.runs is not None and len(missing) > asked.runs:
        say(f"{len(missing) - asked.runs} runs are missing: give the same command again")
        return
    lines = "\n".join(table(Comparison.read(asked.results)))
    say(lines)
    if asked.write:
        head, _, rest = asked.write.read_text().partition(BEGIN)
        tail = rest.partition(END)[2]
        asked.write.write_text(f"{head}{BEGIN}\n\n{lines}\n\n{END}{tail}")


def compare(results: Path, python: str, missing: Sequence[tuple[Training, bool]], kills: int) -> None:
    """Play trainings, with kills where it says so. Each run is kept in `results` as it ends."""
    results.parent.mkdir(parents=True, exist_ok=True)
    for training, killed in missing:
        number = kills if killed else 0
        say(f"seed {training.seed}, {number} kills")
        with working_folder(None) as folder:
            run = asyncio.run(play(folder, python, training, number, say))
        say(f"{' '.join(f'{reward:.2f}' for reward in run.rewards)}; {run.seconds:.0f} s; {run.fates}")
        kept = Comparison.read(results).runs
        write_whole(results, Comparison(runs=(*kept, run)).model_dump_json(indent=1).encode())


def parser() -> argparse.ArgumentParser:
    training = Training()
    made = argparse.ArgumentParser(prog="python -m examples.trl_tiny", description=__doc__)
    made.add_argument("--python", required=True, help="the interpreter that has TRL")
    made.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], help="of damage, items, rollouts, kills"
    )
    made.add_argument("--kills", type=int, default=8, help="in each seed's second run")
    made.add_argument("--steps", type=int, default=training.steps, help="of each run")
    made.add_argument("--rate", type=float, default=training.rate, help="of learning")
    made.add_argument("--groups", type=int, default=training.groups, help="of each step")
    made.add_argument("--group-size", type=int, default=training.group_size)
    made.add_argument(
        "--results", type=Path, default=RESULTS, help="file of the runs; those in it aren't repeated"
    )
    made.add_argument("--runs", type=int, help="runs to play now at most; the same command plays the others")
    made.add_argument("--write", type=Path, help="a document with the marks between which the table goes")
    return made


if __name__ == "__main__":
    main()
