"""The width of a model server: how it follows refusals and hints, and how processes share it."""

import math

import pytest

from clotho.models.server_load import ServerLoad, server_load
from clotho.models.speed import Level
from clotho.models.width import FIRST_WIDTH, LEAST_BY_HINTS, Signals, Width, adjusted, shares

VLLM = """
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
"""


def quick(in_use: int) -> Level:
    """Many answers of a server that takes as long for any number of them."""
    return Level(answers=64, in_use=in_use, seconds=3.0, pace=0.0, variance=0.0)


def settled(bears: int, wanted: int = 10_000, seconds: int = 600) -> list[int]:
    """The width in each second, of a server that refuses what is more than it `bears`."""
    width, widths = Width(), []
    for now in range(seconds):
        sent = min(width.width, wanted)
        taken = min(sent, bears)
        seen = Signals(in_use=taken, waiting=wanted - sent, refused=max(0, sent - bears), level=quick(taken))
        width = adjusted(width, seen, float(now))
        widths.append(width.width)
    return widths


@pytest.mark.parametrize("bears", [1, 2, 5, 7, 10, 33, 100, 1_000])
def test_the_width_settles_at_what_a_server_bears(bears: int) -> None:
    widths = settled(bears)[30:]
    assert min(widths) >= math.floor(bears * 0.8)
    assert max(widths) <= max(bears + 1, bears * 1.2)


def test_a_server_that_refuses_nothing_is_asked_for_all_there_is() -> None:
    assert max(settled(bears=10**9, wanted=500)) >= 500


def test_a_width_that_was_given_up_is_not_what_others_are_judged_by() -> None:
    """A server whose rate is the same at every width from 64 on: it stays near 64."""
    width, now = Width(width=64, changes=3), 0.0
    widths = []
    for _ in range(400):
        now += 5.0
        here = Level(
            answers=64, in_use=width.width, seconds=1.0, pace=math.log(max(64, width.width)), variance=0.0001
        )
        width = adjusted(width, Signals(in_use=width.width, waiting=1_000, level=here), now)
        widths.append(width.width)
    assert max(widths[40:]) <= 64 * 1.3 and sorted(widths)[len(widths) // 2] <= 66


def test_a_width_that_nobody_needs_does_not_grow() -> None:
    assert adjusted(Width(), Signals(in_use=3, waiting=0), 1.0) == Width()


def test_a_server_that_takes_more_again_gets_more() -> None:
    width = Width(width=10, refused=11, refused_at=0.0, changed_at=0.0)
    for now in range(60):
        width = adjusted(width, Signals(in_use=width.width, waiting=100), float(now))
    assert width.width > 100


@pytest.mark.parametrize("hint", [{"load": ServerLoad(queue=1e9)}, {"load": ServerLoad(queue=1, cache=1.0)}])
def test_hints_narrow_the_width_and_never_stop_a_run(hint: dict[str, object]) -> None:
    width = Width(width=100)
    for now in range(100):
        width = adjusted(width, Signals(in_use=width.width, waiting=100, **hint), float(now))
    assert width.width == LEAST_BY_HINTS
    for now in range(100, 200):
        narrow = width if now > 100 else Width(width=2)
        width = adjusted(narrow, Signals(in_use=narrow.width, waiting=100, **hint), float(now))
    assert LEAST_BY_HINTS <= width.width < 2 * LEAST_BY_HINTS, "nor keep it narrower than that"


def test_a_full_cache_or_queue_keeps_the_width_from_growing() -> None:
    for load in (ServerLoad(queue=8), ServerLoad(cache=0.95)):
        seen = Signals(in_use=FIRST_WIDTH, waiting=10, level=quick(FIRST_WIDTH))
        assert adjusted(Width(), seen, 1.0).width > FIRST_WIDTH
        assert adjusted(Width(), seen.model_copy(update={"load": load}), 1.0).width == FIRST_WIDTH


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (VLLM, ServerLoad(queue=7, cache=0.5)),
        ("sglang:num_queue_reqs 12\nsglang:token_usage 0.75\n", ServerLoad(queue=12, cache=0.75)),
        ("vllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc 17\n", ServerLoad()),
        ("vllm:num_requests_waiting -1\nsglang:num_queue_reqs inf\n", ServerLoad()),
        ("vllm:num_requests_waiting\n{}}}\x00<html>" + "vllm:" * 1000, ServerLoad()),
        ("x" * 1_000_000, ServerLoad()),
        ("", ServerLoad()),
    ],
)
def test_metrics_are_read_where_they_could_be_true(text: str, load: ServerLoad) -> None:
    assert server_load(text) == load


@pytest.mark.parametrize(
    ("width", "demands", "granted"),
    [
        (10, {"a": 0}, {"a": 10}),
        (10, {"a": 100, "b": 100}, {"a": 5, "b": 5}),
        (10, {"a": 2, "b": 100}, {"a": 2, "b": 8}),
        (10, {"a": 2, "b": 2}, {"a": 5, "b": 5}),
    ],
)
def test_processes_share_a_width_by_their_demands(
    width: int, demands: dict[str, int], granted: dict[str, int]
) -> None:
    assert shares(width, demands, turn=0) == granted


def test_a_width_of_less_than_one_each_goes_round() -> None:
    demands = {"a": 9, "b": 9, "c": 9}
    given = [shares(1, demands, turn) for turn in range(3)]
    assert all(sum(each.values()) == 1 for each in given)
    assert {name for each in given for name, part in each.items() if part} == {"a", "b", "c"}
