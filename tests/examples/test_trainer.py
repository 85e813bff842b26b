"""The example trainer as a process, with the real API; and each thing that it checks."""

import sys
from pathlib import Path
from typing import Any

import pytest

from clotho.processes.child import ChildProcess
from examples.trainer.api import TrainingGroup
from examples.trainer.checks import Limits, check_batch
from tests.atropos_api.service import ENV, Api, running
from tests.support import eventually

LIMITS = Limits(batch_size=4, max_token_len=8, oldest_version=2)


def group(number: int, **changes: Any) -> dict[str, Any]:
    """Four rows: two of prompt and answer, a filler, and one of two answers."""
    return {
        "tokens": [[5, number, 7], [5, number, 8], [5, number], [5, 9, 5, 3]],
        "masks": [[-100, number, 7], [-100, number, 8], [-100, -100], [-100, 9, -100, 3]],
        "scores": [1.0, 0.0, 0.0, 1.0],
        "inference_logprobs": [[1.0, -0.1, 0.0], [1.0, -0.2, -3.0], [1.0, 1.0], [1.0, -2.0, 1.0, -0.5]],
        "generation_params": {"trainable": True, "weight_versions": [["2"], ["2", "3"], [], ["10"]]},
        "group_id": f"g{number}",
        **changes,
    }


def faults(**changes: Any) -> tuple[str, ...]:
    return check_batch([TrainingGroup.model_validate(group(11, **changes))], LIMITS).faults


def test_a_good_batch_has_no_faults() -> None:
    report = check_batch([TrainingGroup.model_validate(group(11))], LIMITS)
    assert report.faults == ()
    assert (report.groups, report.rows, report.tokens, report.trained) == (1, 4, 12, 6)
    assert (report.mean_score, report.versions) == (0.5, ("2", "3", "10"))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"scores": [1.0]}, "4 rows of tokens with"),
        ({"scores": [float("nan")] * 4}, "a score is not finite"),
        ({"masks": [[-100, 11, 7]] * 4}, "row 1: a mask is neither its token nor -100"),
        ({"masks": [[-100] * 3, [-100] * 3, [-100] * 2, [-100] * 4]}, "nothing is trained on"),
        ({"masks": [[11]] * 4}, "row 0: 3 tokens with 1 masks and 3 logprobs"),
        ({"inference_logprobs": None}, "has no logprobs"),
        ({"inference_logprobs": [[1.0, 0.5, 0.0]] * 4}, "row 0: a trained token has the logprob 0.5"),
        (
            {"inference_logprobs": [[1.0, float("-inf"), 0]] * 4},
            "row 0: a trained token has the logprob -inf",
        ),
        ({"inference_logprobs": [[0.0, -0.1, 0.0]] * 4}, "row 0: a masked token has the logprob 0.0"),
        ({"generation_params": {"trainable": False}}, "is marked as unfit"),
        ({"generation_params": None}, "row 0: weight versions are not known"),
        ({"generation_params": {"weight_versions": [["3"]]}}, "weight versions for 1 rows of 4"),
        ({"generation_params": {"weight_versions": [["ab12"]] * 4}}, "row 0: weight versions are not known"),
        (
            {"generation_params": {"weight_versions": [["1"]] * 4}},
            "row 0: sampled from weights 1, 2 is the oldest",
        ),
        (
            {"generation_params": {"weight_versions": [["step:1"]] * 4}},
            "row 0: sampled from weights 1, 2 is the oldest",
        ),
        ({"tokens": [[5] * 8] * 4}, "row 0: 8 tokens, 7 fit"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], fault: str) -> None:
    assert any(found.startswith(f"g11: {fault}") for found in faults(**changes)), faults(**changes)


def test_a_batch_of_the_wrong_size_is_a_fault() -> None:
    groups = [TrainingGroup.model_validate(group(number)) for number in (1, 2)]
    assert "8 rows instead of 4" in check_batch(groups, LIMITS).faults


@pytest.mark.slow
async def test_the_trainer_prints_a_line_a_batch_and_waits_while_the_api_is_down(tmp_path: Path) -> None:
    async with running(tmp_path) as api:
        # A token of weights 2 may be trained on at step 3: the bad group comes there if one came again.
        options = ["--batch-size", "4", "--batches", "4", "--max-staleness", "1"]
        command = [sys.executable, "-m", "examples.trainer", "--api", str(api.http.base_url), *options]
        trainer = ChildProcess(command, tmp_path / "trainer.log")
        await trainer.start()
        try:
            await eventually(lambda: registered(api), "the trainer takes environments")
            await api.post("/scored_data", group(11))
            await eventually(lambda: said(trainer, "batch 0"), "the first batch")
            # Whether the trainer has asked for another batch by now decides if it sees this one again.
            await api.restart()
            await api.post("/scored_data", group(12))
            await eventually(lambda: ended(trainer, api), "the trainer has its batches")
            assert await trainer.wait() == 1
        finally:
            await trainer.kill()
    lines = [line.partition(": ") for line in trainer.output.splitlines() if line.startswith("batch")]
    good = "1 groups, 4 rows, 12 tokens, 6 trained, score 0.500, weights 2 3 10"
    assert [name for name, _, _ in lines] == [f"batch {number}" for number in range(4)]
    told = [what for _, _, what in lines if "again" not in what]
    assert told[:3] == [f"{good}, ok", f"{good}, ok", f"{good}, 1 FAULTS"]
    assert ": row 1: a trained token has the logprob 2.0" in trainer.output


async def ended(trainer: ChildProcess, api: Api) -> bool:
    """Whether the trainer has; once it has both good batches, there is something wrong for it to find."""
    if trainer.running and len([line for line in trainer.output.splitlines() if line.endswith("10, ok")]) > 1:
        logprobs = [[1.0, 0.0, 0.0], [1.0, 0.0, 2.0], [1.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
        bad = group(13, inference_logprobs=logprobs, group_id=f"bad-{len(trainer.output)}")
        await api.post("/scored_data", bad)
    return not trainer.running


async def registered(api: Api) -> dict[str, Any] | None:
    answer: dict[str, Any] = await api.post("/register-env", ENV)
    return answer if answer["status"] == "success" else None


async def said(trainer: ChildProcess, words: str) -> bool:
    assert trainer.running, trainer.output
    return words in trainer.output
