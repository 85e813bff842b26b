"""Ctrl-C and SIGTERM, for commands that have something to stop in an orderly way."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import typer

Result = TypeVar("Result")


class Interrupted(typer.Exit):
    """A signal came before the work was done: the command ends with the status that shells give for Ctrl-C."""

    def __init__(self) -> None:
        super().__init__(130)


class Interruption:
    """The first signal ends the work under way, so that what was started is stopped; a further one hurries that.

    To be made within a running event loop, whose signal handlers it takes.
    """

    def __init__(self) -> None:
        self.hurry = asyncio.Event()
        self._came = asyncio.Event()
        self._working = False
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    async def ends(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do `work`; cancels it, lets it clean up, and raises Interrupted if a signal comes first."""
        self._working = True
        task, signalled = asyncio.create_task(work), asyncio.create_task(self._came.wait())
        try:
            await asyncio.wait([task, signalled], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                # wait, not await: what the task raises as it cleans up is told below
                await asyncio.wait([task])
            if task.cancelled():
                raise Interrupted
            return task.result()
        finally:
            self._working = False
            signalled.cancel()

    def _on_signal(self) -> None:
        # outside `ends` nothing is left to cancel but a clean-up, which the signal hurries
        if self._came.is_set() or not self._working:
            self.hurry.set()
        self._came.set()
