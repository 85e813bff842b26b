"""A trainer's steps on disk: each one's batch, written before it is trained on, and its report."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from clotho.frozen_model import FrozenModel
from examples.grpo_tiny.whole_files import write_whole
from examples.trainer.api import TrainingGroup

BATCH = TypeAdapter(list[TrainingGroup])


class StepReport(FrozenModel):
    step: int
    """The version of the weights that it made."""
    score: float
    """Mean of the batch, as it was sampled."""
    loss: float
    clipped: float
    """Share of trained tokens whose ratio the clip held."""
    drift: float
    """The largest change of a trained token's logprob since it was sampled."""
    norm: float
    """Norm of the gradients, before clipping."""
    trained: int
    """Tokens."""
    versions: tuple[int, ...]
    """Versions of the weights that the batch was sampled from."""
    lag: int
    """Steps that the oldest of them was behind the weights that were trained."""
    seconds: float
    """Seconds that the update took, without the wait for its batch."""
    finished: float
    """Unix time."""


class Steps:
    """A folder for all lives of a trainer; steps count from 1."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._served_again = folder / "served-again.txt"

    def batch(self, step: int) -> list[TrainingGroup] | None:
        """None if `step` has none yet."""
        path = self._batch_file(step)
        return BATCH.validate_json(path.read_bytes()) if path.exists() else None

    def keep_batch(self, step: int, groups: Sequence[TrainingGroup]) -> None:
        write_whole(self._batch_file(step), BATCH.dump_json(list(groups)))

    def batches(self) -> Iterator[list[TrainingGroup]]:
        """The batches, in the order of their steps."""
        for path in sorted(self._folder.glob("*.batch.json")):
            yield BATCH.validate_json(path.read_bytes())

    def keep_report(self, report: StepReport) -> None:
        write_whole(self._folder / f"{report.step:06}.report.json", report.model_dump_json().encode())

    def reports(self) -> list[StepReport]:
        paths = sorted(self._folder.glob("*.report.json"))
        return [StepReport.model_validate_json(path.read_bytes()) for path in paths]

    def last_begun(self) -> int:
        """The last step that has a batch; 0 before the first."""
        return max((int(path.name[:6]) for path in self._folder.glob("*.batch.json")), default=0)

    def note_served_again(self, groups: Sequence[TrainingGroup]) -> None:
        """The API handed these out once more."""
        with self._served_again.open("a") as file:
            file.writelines(f"{group.group_id}\n" for group in groups)

    def served_again(self) -> list[str]:
        return self._served_again.read_text().split() if self._served_again.exists() else []

    def _batch_file(self, step: int) -> Path:
        return self._folder / f"{step:06}.batch.json"
