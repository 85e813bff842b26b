"""The step that a run's trainer is known to be at: numbered entries in the store, of which the last counts.

It stands for the version of weights that a model server has no name for.
"""

from clotho.identifiers import trainer_step_prefix
from clotho.journal import Journal
from clotho.records.base import Record

KEPT = 2


class TrainerStep(Record):
    """Whoever serves the trainer heard of this step."""

    step: int


async def note_step(journal: Journal, run: str, step: int) -> None:
    """Have the turns of `run` that are sampled from now on know the step."""
    if await known_step(journal, run) == step:
        return
    prefix, entry = trainer_step_prefix(run), TrainerStep(step=step)
    keys = await journal.keys(prefix)
    number = int(keys[-1].removeprefix(prefix)) + 1 if keys else 0
    while await journal.write(f"{prefix}{number:08}", entry) != entry:
        number += 1
    await journal.forget(keys[: 1 - KEPT])


async def known_step(journal: Journal, run: str) -> int | None:
    """None for a run that serves no trainer."""
    entry = await journal.latest(trainer_step_prefix(run), TrainerStep)
    return None if entry is None else entry.step
