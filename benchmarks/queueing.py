"""Cost of having a group's rows on the disk before a trainer's API acknowledges them."""

import asyncio
import gzip
import json
import random
import time
from pathlib import Path

from benchmarks.table import Row
from benchmarks.trainers_end import TrainersEnd, trainers_end

ROWS, TOKENS = 8, 1_000
GROUPS = 64
SENDERS = 16


async def queueing(folder: Path) -> list[Row]:
    """Groups sent to Atropos' own API and to the durable one."""
    async with (
        trainers_end(folder / "stock.log") as stock,
        trainers_end(folder / "durable.log", folder / "queue.sqlite") as durable,
    ):
        rows = []
        for senders, how in ((1, "one after another"), (SENDERS, f"by {SENDERS} senders at once")):
            theirs, ours = [await milliseconds_a_group(api, senders) for api in (stock, durable)]
            rows += [
                Row(
                    f"{ROWS} × {TOKENS:,} tokens queued {how} by Atropos' own API", f"{theirs:.1f} ms a group"
                ),
                Row(
                    "… by the durable one, on the disk",
                    f"{ours:.1f} ms a group, {ROWS / ours * 1e3:,.0f} rows/s",
                ),
            ]
    return rows


async def milliseconds_a_group(api: TrainersEnd, senders: int) -> float:
    await api.begin(ROWS * GROUPS)
    env_id = await api.admit("queueing", ROWS)
    bodies = [_body(env_id, f"queueing/{senders}.{number}") for number in range(GROUPS)]
    headers = {"content-type": "application/json", "content-encoding": "gzip"}

    async def send(first: int) -> None:
        for body in bodies[first::senders]:
            (await api.http.post("/scored_data", content=body, headers=headers)).raise_for_status()

    clock = time.perf_counter()
    await asyncio.gather(*(send(first) for first in range(senders)))
    seconds = time.perf_counter() - clock
    assert len(await api.batch()) == GROUPS
    return seconds / GROUPS * 1e3


def _body(env_id: int, group_id: str) -> bytes:
    draw = random.Random(group_id)
    tokens = [[draw.randrange(150_000) for _ in range(TOKENS)] for _ in range(ROWS)]
    group = {
        "tokens": tokens,
        "masks": tokens,
        "scores": [float(row) for row in range(ROWS)],
        "inference_logprobs": [[-draw.expovariate(1.0) for _ in row] for row in tokens],
        "env_id": env_id,
        "group_id": group_id,
    }
    return gzip.compress(json.dumps(group).encode(), compresslevel=1)
