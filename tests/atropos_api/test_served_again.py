"""A batch is served again until the next is asked for, whatever happens to the API or the trainer."""

import asyncio
import json
import socket
from http.client import HTTPResponse
from typing import Any

import pytest

from tests.atropos_api.service import ENV, Api, group, number_of

Batch = list[dict[str, Any]] | None


def numbers(batch: Batch) -> list[int]:
    assert batch is not None
    return [number_of(each) for each in batch]


@pytest.mark.slow
async def test_a_batch_outlives_any_number_of_kills_until_the_next_is_fetched(api: Api) -> None:
    env = await api.register()
    await api.post("/scored_data_list", [group(n, env_id=env) for n in range(4)])
    first = await api.batch()
    for _ in range(2):
        await api.restart()
        # The first request of the new process, and one after another.
        assert await api.batch() == first
        await api.restart()
        assert await api.get("/status") == {"current_step": 5, "queue_size": 0}
        assert await api.batch() == first
    second = await api.batch()
    await api.restart()
    await api.restart()
    assert await api.batch() == second
    assert sorted(numbers(first) + numbers(second)) == [0, 1, 2, 3]
    assert await api.batch() is None


@pytest.mark.slow
async def test_a_group_sent_after_a_kill_does_not_cost_a_served_batch_its_place(api: Api) -> None:
    env = await api.register()
    await api.post("/scored_data_list", [group(n, env_id=env) for n in range(2)])
    first = await api.batch()
    await api.restart()
    await api.post("/scored_data", group(2, env_id=env))
    await api.restart()
    assert await api.batch() == first
    await api.post("/scored_data", group(3, env_id=env))
    await api.restart()
    assert await api.batch() == first
    assert numbers(await api.batch()) == [2, 3]


@pytest.mark.slow
async def test_groups_keep_their_order_when_a_batch_is_served_again(api: Api) -> None:
    """With minimum allocations a batch is not in the order of the queue."""
    await api.register(batch_size=16)
    other = (await api.post("/register-env", {**ENV, "min_batch_allocation": 0.5}))["env_id"]
    sent = [group(n, env_id=0) for n in range(3)] + [group(n, env_id=other) for n in range(3, 6)]
    await api.post("/scored_data_list", sent)
    first = await api.batch()
    assert numbers(first) != sorted(numbers(first))
    for _ in range(2):
        await api.restart()
        assert await api.batch() == first


@pytest.mark.parametrize("padding", [10, 16_000_000], ids=["small", "large"])
@pytest.mark.slow
async def test_a_trainer_that_hangs_up_in_mid_answer_is_served_the_batch_again(
    api: Api, padding: int
) -> None:
    env = await api.register(batch_size=4)
    await api.post("/scored_data_list", [group(n, env_id=env, images=["x" * padding]) for n in (1, 2)])
    await hang_up_in_mid_answer(api)
    await hang_up_in_mid_answer(api)
    await api.restart()
    await hang_up_in_mid_answer(api)
    found = numbers(await api.batch()) + numbers(await api.batch())
    assert sorted(found) == [1, 2]
    assert await api.batch() is None


async def hang_up_in_mid_answer(api: Api) -> None:
    connection = await asked_for_a_batch(api)
    assert connection.recv(20).startswith(b"HTTP/1.1 200 OK")
    connection.close()
    # Answered after the kernel's word of the reset has been read.
    for _ in range(3):
        await api.get("/status")


async def asked_for_a_batch(api: Api) -> socket.socket:
    """A connection on which the answer has begun to arrive."""
    connection = socket.create_connection(("127.0.0.1", api.port))
    connection.sendall(f"GET /batch HTTP/1.1\r\n{api.head}\r\n".encode())
    await asyncio.to_thread(connection.recv, 1, socket.MSG_PEEK)
    return connection


async def test_a_trainer_that_closes_after_the_whole_answer_has_the_batch(api: Api) -> None:
    env = await api.register(batch_size=4)
    await api.post("/scored_data_list", [group(n, env_id=env) for n in range(2)])
    connection = await asked_for_a_batch(api)
    answer = HTTPResponse(connection)
    answer.begin()
    first = json.loads(await asyncio.to_thread(answer.read))["batch"]
    answer.close()
    connection.close()
    for _ in range(3):
        await api.get("/status")
    assert sorted(numbers(first) + numbers(await api.batch())) == [0, 1]
    assert await api.batch() is None
