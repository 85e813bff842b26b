"""SIGTERM as cancellation of the running work, so that deliveries that were begun can finish."""

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("clotho.plugins.atropos")


@contextmanager
def until_stopped() -> Iterator[None]:
    """SIGTERM cancels the body, which is no error; a second one ends the process at once."""
    body, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert body is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        loop.remove_signal_handler(signal.SIGTERM)
        log.info("told to stop: groups that are being sent arrive first")
        body.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not stopped:
            raise
        body.uncancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
