"""`python -m examples.grpo_tiny.train`: the trainer; killed and started again, it goes on where it was."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from clotho.embedded.model.checkpoint import Architecture
from examples.grpo_tiny import weights as weight_files
from examples.grpo_tiny.inbox import Inbox
from examples.grpo_tiny.layers import Gradients
from examples.grpo_tiny.loss import batch_of, grpo_loss
from examples.grpo_tiny.model import sequence_logprobs
from examples.grpo_tiny.steps import StepReport, Steps
from examples.trainer.api import RETRY_SECONDS, Registration, TrainerApi, TrainingGroup
from examples.trainer.checks import STEP, Limits

CLIP = 0.2
ROWS_AT_A_TIME = 8


class Trainer:
    """The weights in `folder`, which a server samples from, and the optimizer's state beside them."""

    def __init__(self, folder: Path, server: str, steps: Steps, rate: float) -> None:
        self._folder = folder
        self._server = server
        self._steps = steps
        self._shape = Architecture.read(folder)
        self._weights, version = weight_files.read(folder)
        self._optimizer = weight_files.read_optimizer(folder, int(version), rate)

    @property
    def step(self) -> int:
        """The last that was made."""
        return self._optimizer.steps

    def train_on(self, groups: Sequence[TrainingGroup]) -> StepReport:
        """One update, which the server samples from once this returns."""
        started = time.monotonic()
        batch = batch_of(groups)
        gradients, losses = Gradients(), []
        for part in batch.parts(ROWS_AT_A_TIME):
            logprobs, pullback = sequence_logprobs(self._shape, self._weights, part.tokens)
            losses.append(grpo_loss(part, logprobs, CLIP))
            for name, gradient in pullback(losses[-1].by_logprobs).items():
                gradients.add(name, gradient)
        versions = versions_of(groups)
        lag = self.step - min(versions, default=self.step)
        norm = self._optimizer.step(self._weights, gradients)
        report = StepReport(
            step=self.step,
            score=batch.mean_score,
            loss=sum(each.value for each in losses),
            clipped=sum(each.clipped for each in losses),
            drift=max((each.largest_drift for each in losses), default=0.0),
            norm=norm,
            trained=batch.trained_tokens,
            versions=versions,
            lag=lag,
            seconds=time.monotonic() - started,
            finished=time.time(),
        )
        # Before the weights, with which the step counts: a trainer that dies in between makes it once more.
        self._steps.keep_report(report)
        weight_files.write(self._folder, self._weights, self._optimizer)
        self.publish()
        return report

    def publish(self) -> None:
        """Have the server sample from the last weights. One that is away reads them when it comes back."""
        while True:
            try:
                weight_files.reload(self._server)
            except httpx.TransportError:
                time.sleep(RETRY_SECONDS)
            else:
                return


def versions_of(groups: Sequence[TrainingGroup]) -> tuple[int, ...]:
    """The weights that trained tokens were sampled from, the oldest first.

    Of the first part of an interrupted turn only the trainer's step is known: the server names versions at the end.
    """
    rows = (row for group in groups for row in group.weight_versions or ())
    return tuple(sorted({int(version.removeprefix(STEP)) for row in rows for version in row}))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.grpo_tiny.train", description=__doc__)
    parser.add_argument("--api", required=True)
    parser.add_argument("--server", required=True, help="the embedded server's URL, without a path")
    parser.add_argument("--weights", type=Path, required=True, help="the folder that the server reads")
    parser.add_argument("--kept", type=Path, required=True, help="the folder for batches and reports")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--batch-size", type=int, required=True, help="in rows")
    parser.add_argument("--max-token-len", type=int, required=True)
    asked = parser.parse_args()
    asked.kept.mkdir(parents=True, exist_ok=True)
    steps = Steps(asked.kept)
    trainer = Trainer(asked.weights, asked.server, steps, asked.rate)
    trainer.publish()
    registration = Registration(
        batch_size=asked.batch_size,
        max_token_len=asked.max_token_len,
        num_steps=asked.steps,
        starting_step=trainer.step,
    )
    limits = Limits(asked.batch_size, asked.max_token_len, oldest_version=0)
    with TrainerApi(asked.api) as api:
        api.register(registration)
        inbox = Inbox(steps, api.batches(), limits)
        while trainer.step < asked.steps:
            sys.stdout.write(line(trainer.train_on(inbox.batch(trainer.step + 1))) + "\n")
            sys.stdout.flush()


def line(report: StepReport) -> str:
    return (
        f"step {report.step}: score {report.score:.3f}, loss {report.loss:+.4f}, {report.trained} tokens from "
        f"weights {' '.join(map(str, report.versions))}, drift {report.drift:.3f}, clipped {report.clipped:.3f}, "
        f"norm {report.norm:.2f}, {report.seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
