"""`python -m examples.grpo_tiny.train`: the trainer; killed and started again, it goes on from its weights."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict

from clotho.embedded.model.architecture import Architecture
from examples.grpo_tiny import weights as weight_files
from examples.grpo_tiny.adamw import AdamW
from examples.grpo_tiny.layers import Gradients
from examples.grpo_tiny.loss import batch_of, grpo_loss
from examples.grpo_tiny.model import sequence_logprobs
from examples.trainer.api import (
    RETRY_SECONDS,
    Registration,
    TrainerApi,
    TrainingGroup,
    without_repeats,
)
from examples.trainer.checks import BatchReport, Limits, check_batch

RATE = 1e-4
CLIP = 0.2
ROWS_AT_A_TIME = 8


class StepReport(BaseModel):
    """One line of the metrics file."""

    model_config = ConfigDict(frozen=True)

    step: int
    """The version of the weights that it made."""
    score: float
    """Mean of the batch, as it was sampled."""
    loss: float
    clipped: float
    drift: float
    norm: float
    trained: int
    versions: tuple[str, ...]
    """Weights that the batch was sampled from."""
    seconds: float
    """Of the update, without the wait for the batch."""


class Trainer:
    def __init__(self, folder: Path, server: str, limits: Limits) -> None:
        self._folder = folder
        self._server = server
        self._limits = limits
        self._shape = Architecture.read(folder)
        self._weights, version = weight_files.read(folder)
        self.step = int(version)
        self._optimizer = AdamW(RATE, steps=self.step)
        weight_files.read_moments(folder, self._optimizer)

    def train_on(self, groups: Sequence[TrainingGroup]) -> StepReport:
        """One update, which the server samples from once this returns. Raises ValueError for a faulty batch."""
        started = time.monotonic()
        checked = self._checked(groups)
        batch = batch_of(groups)
        gradients, losses = Gradients(), []
        for part in batch.parts(ROWS_AT_A_TIME):
            logprobs, pullback = sequence_logprobs(self._shape, self._weights, part.tokens)
            losses.append(grpo_loss(part, logprobs, CLIP))
            for name, gradient in pullback(losses[-1].by_logprobs).items():
                gradients.add(name, gradient)
        norm = self._optimizer.step(self._weights, gradients)
        self.step += 1
        weight_files.write_moments(self._folder, self._optimizer, self.step)
        weight_files.write(self._folder, self._weights, self.step)
        self._publish()
        return StepReport(
            step=self.step,
            score=batch.mean_score,
            loss=sum(each.value for each in losses),
            clipped=sum(each.clipped for each in losses),
            drift=max(each.largest_drift for each in losses),
            norm=norm,
            trained=checked.trained,
            versions=checked.versions,
            seconds=time.monotonic() - started,
        )

    def _checked(self, groups: Sequence[TrainingGroup]) -> BatchReport:
        report = check_batch(groups, self._limits)
        if report.faults:
            raise ValueError("; ".join(report.faults))
        return report

    def _publish(self) -> None:
        """A server that is away reads the folder when it comes back: until it answers, nothing is fetched."""
        while True:
            try:
                weight_files.reload(self._server)
            except httpx.TransportError:
                time.sleep(RETRY_SECONDS)
            else:
                return


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.grpo_tiny.train", description=__doc__)
    parser.add_argument("--api", required=True)
    parser.add_argument("--server", required=True, help="the embedded server's URL, without a path")
    parser.add_argument("--weights", type=Path, required=True, help="the folder that the server reads")
    parser.add_argument("--metrics", type=Path, required=True, help="a file of JSON lines, appended to")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--max-token-len", type=int, required=True)
    asked = parser.parse_args()
    trainer = Trainer(asked.weights, asked.server, Limits(asked.batch_size, asked.max_token_len))
    registration = Registration(
        batch_size=asked.batch_size,
        max_token_len=asked.max_token_len,
        num_steps=asked.steps,
        starting_step=trainer.step,
    )
    with TrainerApi(asked.api) as api, asked.metrics.open("a") as metrics:
        api.register(registration)
        batches = without_repeats(api.batches())
        while trainer.step < asked.steps:
            report = trainer.train_on(next(batches))
            metrics.write(report.model_dump_json() + "\n")
            metrics.flush()
            sys.stdout.write(line(report) + "\n")
            sys.stdout.flush()


def line(report: StepReport) -> str:
    return (
        f"step {report.step}: score {report.score:.3f}, loss {report.loss:+.4f}, {report.trained} tokens from "
        f"weights {' '.join(report.versions)}, drift {report.drift:.3f}, clipped {report.clipped:.3f}, "
        f"norm {report.norm:.2f}, {report.seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
