"""The end of a worker process: its signals and its exit status."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from clotho.failure_policy import StepAction, kind_of, policy_for
from clotho.processes.group import REJECTED


def stop_signal(end_children: Callable[[], None]) -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second ends children, then the process, at once."""
    stopped = asyncio.Event()

    def on_signal() -> None:
        if stopped.is_set():
            end_children()
            os._exit(1)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stopped


def leave(status: int) -> NoReturn:
    """Exit without the interpreter's shutdown, which the SDK's native threads can abort."""
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)


def exit_status(error: BaseException) -> int:
    """The exit status for `error`: REJECTED unless it is an outage, after which the process is restarted."""
    return 1 if policy_for(kind_of(error)).step is StepAction.RETRY else REJECTED
