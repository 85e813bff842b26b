"""Costs of an entry in a folder and in S3: written and read, one after another and many at once, in one run.

python -m benchmarks.stores
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import boto3

from benchmarks.table import Row
from clotho.config import Settings, cache_folder, settings_class
from clotho.host import program_on_path
from clotho.journal.open_store import open_store
from clotho.journal.store import Store
from tests.s3_server import s3_server_binary, s3_server_process

BODY = os.urandom(4_096)
REPEATS = 300
WIDTH = 64
BUCKET, REGION = "bench", "us-east-1"


class Timing(NamedTuple):
    median_ms: float
    p95_ms: float
    per_second: float


async def measure() -> list[Row]:
    """Entries of 4 KB. The S3 server is on this machine and takes a part of its processors; no network is timed."""
    with tempfile.TemporaryDirectory(prefix="clotho-bench-") as name:
        folder = Path(name)
        rows = await _measured("folder", open_store(str(folder / "store"), Settings()))
        async with _s3(folder / "s3") as s3:
            return rows + await _measured("S3", s3)


async def _measured(name: str, store: Store) -> list[Row]:
    await _timed(lambda number: store.create(f"warm/{number}", BODY), 1)
    alone = await _timed(lambda number: store.create(f"alone/{number}", BODY), 1)
    together = await _timed(lambda number: store.create(f"together/{number}", BODY), WIDTH)
    read = await _timed(lambda number: store.read_many([f"alone/{number}"]), 1)
    read_together = await _timed(lambda number: store.read_many([f"together/{number}"]), WIDTH)
    keys = await store.keys("together/")
    began = time.perf_counter()
    await store.read_many(keys)
    many = len(keys) / (time.perf_counter() - began)
    return [
        Row(f"{name}: create", _shown(alone)),
        Row(f"{name}: create, {WIDTH} at once", _shown(together)),
        Row(f"{name}: read", _shown(read)),
        Row(f"{name}: read, {WIDTH} at once", _shown(read_together)),
        Row(f"{name}: read {len(keys)} in one call", f"{many:.0f}/s"),
    ]


async def _timed(run: Callable[[int], Awaitable[object]], width: int) -> Timing:
    """REPEATS runs, `width` of them at any time."""

    async def lane(numbers: Sequence[int]) -> list[float]:
        seconds = []
        for number in numbers:
            began = time.perf_counter()
            await run(number)
            seconds.append(time.perf_counter() - began)
        return seconds

    began = time.perf_counter()
    lanes = await asyncio.gather(*(lane(range(REPEATS)[first::width]) for first in range(width)))
    wall = time.perf_counter() - began
    seconds = sorted(second for each in lanes for second in each)
    p95 = seconds[len(seconds) * 95 // 100]
    return Timing(statistics.median(seconds) * 1e3, p95 * 1e3, len(seconds) / wall)


@asynccontextmanager
async def _s3(folder: Path) -> AsyncIterator[Store]:
    async with s3_bucket(folder) as (location, settings):
        yield await asyncio.to_thread(open_store, location, settings)


@asynccontextmanager
async def s3_bucket(folder: Path, access_log: Path | None = None) -> AsyncIterator[tuple[str, Settings]]:
    """The location of a store in a new bucket, to which the environment of this process leads meanwhile."""
    binary = await s3_server_binary(
        cache_folder() / "bin", on_path=program_on_path("versitygw"), go=program_on_path("go")
    )
    if binary is None:
        raise RuntimeError("there is no S3 server: put versitygw on PATH, or install Go to build it with")
    async with s3_server_process(binary, folder, access_log) as server:
        variables = {
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "CLOTHO_PLUGINS__S3__ENDPOINT": server.endpoint,
            "CLOTHO_PLUGINS__S3__REGION": REGION,
        }
        with patch.dict(os.environ, variables):
            client = boto3.client("s3", endpoint_url=server.endpoint, region_name=REGION)
            await asyncio.to_thread(client.create_bucket, Bucket=BUCKET)
            yield f"s3://{BUCKET}/journal", settings_class()()


def _shown(timing: Timing) -> str:
    return f"median {timing.median_ms:.1f} ms, p95 {timing.p95_ms:.1f} ms, {timing.per_second:.0f}/s"


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:40}{row.figure}")  # noqa: T201
