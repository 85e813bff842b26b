"""Obtain what tests run, and what this machine doesn't have yet: `python -m tests.programs [--slow]`."""

import asyncio
import signal
import sys

from clotho.config import cache_folder
from clotho.embedded.temporal_binary import temporal_binary
from clotho.host import program_on_path
from tests.deploy.helm import helm_program
from tests.s3_server import s3_server_binary


async def obtain(slow: bool) -> None:
    """Builds take minutes, with all processors: one follows the other, in the order in which tests need them.

    `slow`: what slow tests alone need, too.
    """
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await temporal_binary()
    await s3_server_binary(
        cache_folder() / "bin", on_path=program_on_path("versitygw"), go=program_on_path("go")
    )
    if slow:
        await helm_program()


if __name__ == "__main__":
    asyncio.run(obtain("--slow" in sys.argv))
