"""Requests of a rollout to a store in a bucket, counted by its server, and what S3 charges for them.

python -m benchmarks.bucket
"""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks import loop
from benchmarks.stores import s3_bucket
from benchmarks.table import Row
from clotho.journal import Journal
from clotho.journal.open_store import open_store
from clotho.testing.script import Conversation, Script, terminal_turns
from tests.cluster import Cluster

ROLLOUTS, TURNS = 20, 10
OPERATION = re.compile(r" s3_(\w+) ")
DOLLARS_PER_MILLION = {"PutObject": 5.0, "ListObjectsV2": 5.0, "GetObject": 0.4, "DeleteObjects": 0.0}
"""Prices of S3 Standard in us-east-1."""


async def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="clotho-bench-") as name:
        log = Path(name, "access.log")
        async with s3_bucket(Path(name, "s3"), log) as (location, settings):
            store = await asyncio.to_thread(open_store, location, settings)

            class InBucket(Cluster):
                """Workers whose store is the bucket."""

                store_location = location
                store_identity = store.identity

                def open_journal(self) -> Journal:
                    return Journal(store)

            async with loop.bench(InBucket) as measured:
                no_op = Script(conversations=(Conversation(variants=((*[loop.NO_OP] * TURNS, loop.DONE),)),))
                plain = await _counted(log, lambda: _rollouts(measured, no_op, loop.LOOP))
                commands = Script(conversations=(terminal_turns(TURNS),))
                verified = await _counted(log, lambda: _rollouts(measured, commands, loop.GRADED))
    return [
        Row(f"{TURNS} turns, no sandbox: requests a rollout", _shown(plain)),
        Row("… price of a million", _price(plain)),
        Row(f"{TURNS} turns with a command and a checkpoint each, verification", _shown(verified)),
        Row("… price of a million", _price(verified)),
    ]


async def _rollouts(measured: loop.Bench, script: Script, environment: str) -> None:
    async with measured.model(script) as url:
        await measured.rollouts(url, groups=ROLLOUTS // 4, group_size=4, environment=environment)


async def _counted(log: Path, work: Callable[[], Awaitable[None]]) -> Counter[str]:
    """Requests while `work` was done, by operation: heartbeats of workers are among them."""
    before = _requests(log)
    await work()
    return _requests(log) - before


def _requests(log: Path) -> Counter[str]:
    return Counter(OPERATION.findall(log.read_text()))


def _shown(requests: Counter[str]) -> str:
    return ", ".join(f"{number / ROLLOUTS:.1f} {operation}" for operation, number in requests.most_common())


def _price(requests: Counter[str]) -> str:
    return f"{sum(number * DOLLARS_PER_MILLION[each] for each, number in requests.items()) / ROLLOUTS:,.0f} $"


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:70}{row.figure}")  # noqa: T201
