"""Delivery to the trainer: what is counted in a cell of the matrix; `make chaos` plays them."""

from chaos.delivery.results import Delivered, DeliveryResult, compare
from chaos.delivery.trainer import Received, digest
from examples.trainer.api import TrainingGroup

CLEAN = DeliveryResult(fault="adapter", phase="posted", recovery=1.0)
FIRST, SECOND = ("a", "1"), ("b", "2")


def batch(*groups: tuple[str, str], faults: tuple[str, ...] = ()) -> Received:
    return Received(groups=groups, faults=faults)


UNDISTURBED = Delivered(batches=(batch(FIRST), batch(SECOND)), queued=2)


def missed(run: Delivered, **fields: object) -> list[str]:
    return compare(CLEAN.model_copy(update=fields), run, UNDISTURBED).missed


def test_what_differs_from_the_undisturbed_run_is_counted() -> None:
    assert missed(UNDISTURBED) == []
    assert missed(Delivered(batches=(batch(FIRST),), queued=2)) == ["lost 1"]
    other = Delivered(batches=(batch(FIRST), batch(("b", "3"))), queued=2)
    assert missed(other) == ["changed 1"]
    told = batch(("b", "3")).model_copy(update={"resumed": ("b",)})
    resumed = compare(CLEAN, Delivered(batches=(batch(FIRST), told), queued=2), UNDISTURBED)
    assert resumed.missed == [] and resumed.footnotes == ["⁷(1)"]
    twice = Delivered(batches=(batch(FIRST), batch(SECOND), batch(SECOND)), queued=3)
    assert missed(twice) == ["queued twice 1"]
    faulty = Delivered(batches=(batch(FIRST), batch(SECOND, faults=("bad",))), queued=2)
    assert missed(faulty) == ["faulty batches 1"]
    assert missed(UNDISTURBED, recovery=None) == ["never went on"]
    assert missed(Delivered(batches=(batch(FIRST),), queued=2), died_with=("b",)) == []
    assert missed(Delivered(batches=(), queued=2), died_with=("b",)) == ["lost 1"]


def test_how_a_rollout_was_disturbed_is_no_change_of_its_tokens() -> None:
    sent = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1.0], "inference_logprobs": [[1.0, -0.5]]}
    labels: tuple[dict[str, list[list[str]]], ...] = (
        {"disturbances": [[]]},
        {"disturbances": [["sandbox-lost"]]},
    )
    first, second = (TrainingGroup.model_validate({**sent, "generation_params": each}) for each in labels)
    assert digest(first) == digest(second)
    assert digest(first) != digest(first.model_copy(update={"scores": [0.5]}))


def test_only_an_api_that_was_killed_may_serve_a_batch_again() -> None:
    again = Delivered(batches=(batch(FIRST), batch(FIRST), batch(SECOND)), queued=2)
    assert missed(again) == ["served again 1"]
    assert missed(again, api_died=True) == []
