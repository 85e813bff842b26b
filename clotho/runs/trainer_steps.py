"""The last known step of a run's trainer, in a numbered log.

It stands for the version of the weights if the model server names none.
"""

from clotho.frozen_model import FrozenModel
from clotho.identifiers.keys import trainer_step_prefix
from clotho.journal import Journal

# two: a reader that has listed the log finds the last entry still there after one more append
KEPT_ENTRIES = 2


class TrainerStep(FrozenModel):
    """A step that the trainer's API reported."""

    step: int


async def note_step(journal: Journal, run: str, step: int) -> None:
    """Record the step, for the turns of `run` that are sampled from now on."""
    if await known_step(journal, run) == step:
        return
    await journal.append(trainer_step_prefix(run), TrainerStep(step=step), KEPT_ENTRIES)


async def known_step(journal: Journal, run: str) -> int | None:
    """The last known step; None for a run that serves no trainer."""
    entry = await journal.latest(trainer_step_prefix(run), TrainerStep)
    return None if entry is None else entry.step
