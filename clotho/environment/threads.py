"""An author's function in a thread of its own: if it blocks, its caller's event loop goes on."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from clotho.host_failures import described


class TimedOut(Exception):
    """The function gave no answer in time."""


async def in_thread(function: Callable[[], Any], seconds: float) -> Any:
    """The result of `function`, or of its coroutine in an event loop of the thread's own.

    A thread can't be ended: after `seconds` this leaves it alone, cancels a coroutine in it, and raises TimedOut.
    Raises RuntimeError where the function raises what is no Exception.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        # a future refuses StopIteration, and an exit would end the caller's event loop
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            answer.set_exception(error)
        else:
            answer.set_exception(RuntimeError(described(error)))

    def run() -> None:
        value, failure = None, None
        try:
            value = function()
            if inspect.isawaitable(value):
                value = asyncio.run(_within(value, seconds))
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(settle, value, failure)

    # no pool: functions that hang would use up its threads; daemon: they would keep the process from ending
    threading.Thread(target=run, name="tool", daemon=True).start()
    return await _within(answer, seconds)


async def _within(work: Awaitable[Any], seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds) as bound:
            return await work
    except TimeoutError:
        # the function may raise a TimeoutError of its own
        if bound.expired():
            raise TimedOut from None
        raise
