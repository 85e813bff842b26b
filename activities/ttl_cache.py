"""A cache of answers for a moment: one look at the store serves many turns."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

FRESH_SECONDS = 1.0
"""Largest age of an answer."""

Answer = TypeVar("Answer")


class TTLCache(Generic[Answer]):
    """The answers of `ask`, which is called at most once per name in FRESH_SECONDS."""

    def __init__(self, ask: Callable[[str], Awaitable[Answer]]) -> None:
        self._ask = ask
        self._answers: dict[str, tuple[float, asyncio.Future[Answer]]] = {}

    async def of(self, name: str) -> Answer:
        """The answer for `name`; concurrent callers share one call, and its exception, which isn't cached."""
        now = asyncio.get_running_loop().time()
        asked, answer = self._answers.get(name, (now, None))
        stale = now - asked > FRESH_SECONDS
        if answer is None or stale or (answer.done() and answer.exception() is not None):
            answer = asyncio.ensure_future(self._ask(name))
            # its age counts from the question: the store may change while it answers
            self._answers[name] = (now, answer)
        # a caller that is cancelled must not take the answer from the others
        return await asyncio.shield(answer)
