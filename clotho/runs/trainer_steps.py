"""The step that a run's trainer is known to be at: numbered entries in the store, of which the last counts.

It stands for the version of weights that a model server has no name for.
"""

from clotho.frozen_model import FrozenModel
from clotho.identifiers.run_keys import trainer_step_prefix
from clotho.journal import Journal

KEPT = 2


class TrainerStep(FrozenModel):
    """Whoever serves the trainer heard of this step."""

    step: int


async def note_step(journal: Journal, run: str, step: int) -> None:
    """Have the turns of `run` that are sampled from now on know the step."""
    if await known_step(journal, run) == step:
        return
    await journal.append(trainer_step_prefix(run), TrainerStep(step=step), KEPT)


async def known_step(journal: Journal, run: str) -> int | None:
    """None for a run that serves no trainer."""
    entry = await journal.latest(trainer_step_prefix(run), TrainerStep)
    return None if entry is None else entry.step
