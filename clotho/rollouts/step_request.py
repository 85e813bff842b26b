"""The base of requests for one step of a rollout."""

from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import run_of


class StepRequest(FrozenModel):
    """A request for a step of one rollout, whose id begins with its run's name."""

    rollout: str

    @property
    def run(self) -> str:
        return run_of(self.rollout)
