"""A renderer with a thread of its own: rendering takes CPU time, and tokenizers aren't thread-safe."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from clotho.models.rendering.renderer import Renderer

Result = TypeVar("Result")


class RenderingThread:
    """Opens the renderer at the first use; if `open_it` raises, it is called again."""

    def __init__(self, open_it: Callable[[], Renderer]) -> None:
        self._open = open_it
        self._renderer: Renderer | None = None
        self._thread = ThreadPoolExecutor(1, "renderer")

    async def run(self, work: Callable[[Renderer], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._opened()))

    async def renderer(self) -> Renderer:
        """The renderer, for calls that take no time."""
        return await self.run(lambda renderer: renderer)

    def _opened(self) -> Renderer:
        if self._renderer is None:
            self._renderer = self._open()
        return self._renderer
