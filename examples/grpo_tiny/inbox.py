"""A trainer's batches, each group in one of them, whoever dies on the way.

The API hands a batch out again where it died before it knew that the last one had arrived, and forgets it once it
is asked for the next. So a batch is written down at once, and a trainer that died with it finds it there.
"""

from collections.abc import Iterator

from examples.grpo_tiny.steps import Steps
from examples.trainer.api import TrainingGroup
from examples.trainer.checks import Limits, check_batch


class Inbox:
    def __init__(self, steps: Steps, served: Iterator[list[TrainingGroup]], limits: Limits) -> None:
        """`served` are the API's batches, without end."""
        self._steps = steps
        self._served = served
        self._limits = limits
        self._known = {group.group_id for batch in steps.batches() for group in batch}

    def batch(self, step: int) -> list[TrainingGroup]:
        """The batch of `step`. Raises ValueError for a faulty one."""
        groups = self._steps.batch(step)
        if groups is None:
            groups = self._next_new()
            self._steps.keep_batch(step, groups)
            self._known |= {group.group_id for group in groups}
        return groups

    def _next_new(self) -> list[TrainingGroup]:
        """The groups of the next batch that were in none before; of a batch that has any."""
        for batch in self._served:
            if faults := check_batch(batch, self._limits).faults:
                raise ValueError("; ".join(faults))
            new = [group for group in batch if group.group_id not in self._known]
            self._steps.note_served_again([group for group in batch if group.group_id in self._known])
            if new:
                return new
        raise EOFError("the API serves no more batches")
