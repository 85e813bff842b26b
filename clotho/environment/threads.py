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

    A thread can't be ended: after `seconds` it is left alone, and a coroutine in it cancelled. Raises TimedOut
    then, and RuntimeError for what a function may raise that is no Exception.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
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

    threading.Thread(target=run, name="tool", daemon=True).start()
    return await _within(answer, seconds)


async def _within(work: Awaitable[Any], seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds) as bound:
            return await work
    except TimeoutError:
        if bound.expired():
            raise TimedOut from None
        raise
