"""Answers that are given again for a moment: many turns ask, and one look at the store answers them all."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

FRESH_SECONDS = 1.0
"""How old an answer may be."""

Answer = TypeVar("Answer")


class TTLCache(Generic[Answer]):
    """What `ask` says of each name, asked at most once in FRESH_SECONDS by one process."""

    def __init__(self, ask: Callable[[str], Awaitable[Answer]]) -> None:
        self._ask = ask
        self._answers: dict[str, tuple[float, asyncio.Future[Answer]]] = {}

    async def of(self, name: str) -> Answer:
        """One question for all who ask at the same time; what it raises, all of them get, and nobody later."""
        now = asyncio.get_running_loop().time()
        asked, answer = self._answers.get(name, (now, None))
        stale = now - asked > FRESH_SECONDS
        if answer is None or stale or (answer.done() and answer.exception() is not None):
            answer = asyncio.ensure_future(self._ask(name))
            self._answers[name] = (now, answer)
        return await asyncio.shield(answer)
