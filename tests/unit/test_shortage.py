"""Workers that can have no descriptors, memory or threads for long end themselves."""

import asyncio
import subprocess
import sys

import pytest

from clotho.processes.shortage import lasting_shortage, shortage
from tests.support import PATIENCE_SECONDS

SHORT = """
import asyncio, resource, sys
import worker
from clotho.logs import configure
from clotho.processes import shortage

configure("text", "tools")
lasting = shortage.lasting_shortage
worker.lasting_shortage = lambda: lasting(lasting_seconds=0.2, period_seconds=0.05)

async def main():
    async def exhaust():
        await asyncio.sleep(0)
        resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)

    await exhaust()
    await worker._end_when_short()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("limit", "value", "kind"), [("RLIMIT_NOFILE", 3, "descriptors"), ("RLIMIT_AS", 1 << 20, "memory")]
)
def test_a_worker_without_a_resource_ends_itself_with_one_line(limit: str, value: int, kind: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SHORT, limit, str(value)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 1 and f"ends: no {kind}" in line


def test_a_thread_that_cannot_start_is_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    assert shortage() is None
    monkeypatch.setattr("threading.Thread.start", start)
    assert shortage() == "threads (RuntimeError: can't start new thread)"


async def test_a_peak_is_no_lasting_shortage() -> None:
    found = iter(["descriptors", None] * 20)
    looks: list[str | None] = []

    def find() -> str | None:
        looks.append(next(found, "memory"))
        return looks[-1]

    assert await asyncio.wait_for(lasting_shortage(find, 0.0, 0.0), PATIENCE_SECONDS) == "memory"
    assert len(looks) == 42
