"""`python -m examples.grpo_tiny`: train a damaged policy, left alone and with parts killed, and compare."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clotho.errors import ClothoError
from examples.grpo_tiny.chain import Training
from examples.grpo_tiny.comparison import Comparison, Order, TrainingRun, compare, shown
from examples.grpo_tiny.held_out import Size
from examples.grpo_tiny.plot import plot

FIGURES, PLOT = "comparison.json", "comparison.svg"


def main() -> None:
    options = parser()
    asked = options.parse_args()
    if asked.kills >= asked.steps:
        options.error("each kill comes in a step of its own after the first: give fewer --kills")
    order = Order(
        training=Training(steps=asked.steps, rate=asked.rate, damage=asked.damage),
        held_out=Size(items=asked.held_out),
        kills=asked.kills,
        seed=asked.seed,
    )
    asked.write.mkdir(parents=True, exist_ok=True)
    try:
        with working_folder(asked.folder) as folder:
            comparison = asyncio.run(compare(folder, order, say))
    except ClothoError as error:
        sys.exit(f"examples.grpo_tiny: {error}")
    (asked.write / FIGURES).write_text(comparison.model_dump_json(indent=1) + "\n")
    (asked.write / PLOT).write_text(plot(comparison))
    say("\n".join(table(comparison)))
    say(f"figures in {asked.write / FIGURES}, drawn in {asked.write / PLOT}")


def parser() -> argparse.ArgumentParser:
    training, order = Training(), Order()
    made = argparse.ArgumentParser(prog="python -m examples.grpo_tiny", description=__doc__)
    made.add_argument("--steps", type=int, default=training.steps, help="of each run")
    made.add_argument("--rate", type=float, default=training.rate, help="of learning")
    made.add_argument("--damage", type=float, default=training.damage, help="in deviations of the weights")
    made.add_argument("--kills", type=int, default=order.kills, help="in the second run")
    made.add_argument("--seed", type=int, default=order.seed, help="of the kills")
    made.add_argument("--held-out", type=int, default=order.held_out.items, help="items")
    made.add_argument("--write", type=Path, default=Path(".clotho/grpo-tiny"), help="where the results go")
    made.add_argument(
        "--folder", type=Path, help="a new one to run and to leave everything in; default: a temporary one"
    )
    return made


@contextmanager
def working_folder(asked: Path | None) -> Iterator[Path]:
    """One that the users of sandboxes may pass through."""
    if asked is not None:
        asked.mkdir(mode=0o711, parents=True)
        yield asked.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="clotho-grpo-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def table(comparison: Comparison) -> list[str]:
    undisturbed, killed = map(column, (comparison.undisturbed, comparison.killed))
    rows = [f"{name:34}{undisturbed[name]:28}{killed[name]}" for name in undisturbed]
    return [*rows, f"killed minus undisturbed, held out  {shown(comparison.killed_more)}"]


def column(run: TrainingRun) -> dict[str, str]:
    fates = run.fates
    dropped = ", ".join(f"{count} {reason}" for reason, count in fates.dropped.items())
    return {
        "": run.name,
        "held out, before": shown(run.before.score),
        "held out, after": shown(run.after.score),
        "rise, item by item": shown(run.rise),
        "held-out items trained on": str(run.also_trained_on),
        "steps": str(len(run.steps)),
        "seconds": f"{run.seconds:.0f}",
        "largest lag of a token's weights": f"{max(step.lag for step in run.steps)} steps",
        "SIGKILLs": str(len(run.kills)),
        "groups drawn": str(fates.drawn),
        "dropped by the adapter": dropped or "0",
        "accepted by the API": str(fates.accepted),
        "trained on": str(fates.trained),
        "waiting at the end": str(fates.waiting),
        "lost": str(len(fates.lost)),
        "trained on twice": str(len(fates.trained_twice)),
        "sent again to the API": str(fates.sent_again),
        "served again to the trainer": str(fates.served_again),
    }


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
