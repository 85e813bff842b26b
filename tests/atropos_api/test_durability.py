"""What an acknowledgement promises, over SIGKILLs."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.atropos_api.service import ENV, Api, group, number_of, running
from tests.support import PATIENCE_SECONDS

SENDERS = 6
GROUPS_EACH = 30
KILLS = 4


async def test_no_group_is_lost_or_doubled_by_kills_while_senders_send_and_a_trainer_fetches(
    api: Api,
) -> None:
    env = await api.register()
    choice = random.Random(7)
    fetched: list[list[int]] = []
    acknowledged = 0

    async def send_all(sender: int) -> None:
        nonlocal acknowledged
        for index in range(GROUPS_EACH):
            number = sender * GROUPS_EACH + index
            body = group(number, env_id=env)
            while not await accepted(api, [body] if index % 3 == 0 else body):
                await asyncio.sleep(0.05)
            acknowledged += 1

    async def fetch_all() -> None:
        while {number for batch in fetched for number in batch} != set(range(SENDERS * GROUPS_EACH)):
            try:
                batch = await api.batch()
            except httpx.TransportError:
                batch = None
            if batch is None:
                await asyncio.sleep(0.02)
            else:
                fetched.append([number_of(each) for each in batch])

    async def kill_now_and_then() -> None:
        for kill in range(KILLS):
            while acknowledged < (kill + 0.5) * SENDERS * GROUPS_EACH / KILLS:
                await asyncio.sleep(0.005)
            await asyncio.sleep(choice.random() * 0.03)
            await api.restart()

    work = [send_all(sender) for sender in range(SENDERS)]
    async with asyncio.timeout((KILLS + 1) * PATIENCE_SECONDS):
        await asyncio.gather(*work, fetch_all(), kill_now_and_then())
    served = Counter(number for batch in fetched for number in batch)
    assert len(served) == SENDERS * GROUPS_EACH
    # What came twice came as the same batch again: one for each kill at most.
    assert len(fetched) - len({tuple(sorted(batch)) for batch in fetched}) <= KILLS
    assert sum(served.values()) - len(served) <= KILLS * 2
    assert (await api.get("/status"))["queue_size"] == 0


async def accepted(api: Api, body: Any) -> bool:
    path = "/scored_data_list" if isinstance(body, list) else "/scored_data"
    try:
        return (await api.http.post(path, json=body)).is_success
    except httpx.TransportError:
        return False


async def test_trainer_environments_and_step_outlive_a_kill(api: Api) -> None:
    env = await api.register()
    gone = (await api.post("/register-env", ENV))["env_id"]
    await api.post("/disconnect-env", {"env_id": gone})
    await api.post("/scored_data_list", [group(n, env_id=env) for n in range(5)])
    assert await api.batch() is not None
    paths = ("/info", "/wandb_info", "/status", "/latest_example")
    before = [await api.get(path) for path in paths] + [await status_of(api, env)]
    await api.restart()
    assert [await api.get(path) for path in paths] + [await status_of(api, env)] == before
    assert before[2] == {"current_step": 5, "queue_size": 1}
    # Names count on from those that are known, and nobody has to wait for the trainer.
    third = await api.post("/register-env", ENV)
    assert (third["status"], third["env_id"], third["wandb_name"]) == ("success", 2, "env_2")


async def status_of(api: Api, env: int) -> Any:
    return (await api.http.request("GET", "/status-env", json={"env_id": env})).json()


async def test_a_batch_that_was_fetched_just_before_a_kill_is_served_again_once(api: Api) -> None:
    env = await api.register()
    await api.post("/scored_data_list", [group(n, env_id=env) for n in range(6)])
    first = await api.batch()
    step = (await api.get("/status"))["current_step"]
    await api.restart()
    assert await api.batch() == first
    second = await api.batch()
    await api.restart()
    # The first was acknowledged by the fetch of the second, which is not yet.
    assert await api.batch() == second
    third = await api.batch()
    assert third is not None
    assert await api.batch() is None
    await api.restart()
    assert await api.batch() is None
    seen = sorted(number_of(each) for batch in (first, second, third) for each in batch or ())
    assert seen == list(range(6))
    assert (await api.get("/status"))["current_step"] == step


async def test_groups_that_wait_for_others_outlive_a_kill(api: Api) -> None:
    env = await api.register(batch_size=4)
    assert (await api.post("/scored_data", group(1, rows=2, env_id=env)))["status"] == "buffered"
    await api.restart()
    answer = await api.post("/scored_data", group(2, rows=2, env_id=env))
    assert answer == {"status": "buffered", "buffer_size": 0}
    await api.restart()
    # Two halves make a batch only beside a whole group, which stock's packing measures them by.
    await api.post("/scored_data", group(3, env_id=env))
    batches = [await api.batch(), await api.batch()]
    numbers = [sorted(map(number_of, batch or ())) for batch in batches]
    assert sorted(numbers) == [[1, 2], [3]]


async def test_a_full_disk_is_answered_503_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    async with running(tmp_path, file_blocks=400) as api:
        env = await api.register()
        sent = 0
        while True:
            body = group(sent, env_id=env, images=["x" * 20_000])
            answer = await api.http.post("/scored_data", json=body)
            if not answer.is_success:
                break
            sent += 1
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert sent > 2
        assert (await api.get("/status"))["queue_size"] == sent
        api.without_limits()
        await api.restart()
        assert (await api.get("/status"))["queue_size"] == sent
        assert await api.post("/scored_data", body) == {"status": "received"}
        if (sent + 1) % 2:
            await api.post("/scored_data", group(sent + 1, env_id=env))
        numbers = []
        while (batch := await api.batch()) is not None:
            numbers += [number_of(each) for each in batch]
        assert sorted(numbers)[: sent + 1] == list(range(sent + 1))
