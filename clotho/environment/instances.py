"""Calls into an environment author's code; its exceptions are told apart from the infrastructure's."""

import asyncio
import concurrent.futures.thread
import inspect
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from clotho.environment.environment import Environment
from clotho.environment.loading import make_environment
from clotho.errors import ClothoError, EnvironmentFailed, HostUnavailable
from clotho.host_failures import described, is_host_failure
from clotho.rollouts.item import Item
from clotho.rollouts.run import RunManifest

THREADS = 64
THREAD_FILE = concurrent.futures.thread.__file__

Result = TypeVar("Result")


class Environments:
    """The environments of this process, each made and set up once for a configuration."""

    def __init__(self) -> None:
        self._ready: dict[str, asyncio.Task[Environment]] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="environment")

    async def get(self, manifest: RunManifest) -> Environment:
        """The run's instance. Raises InvalidInput for a bad configuration, EnvironmentFailed if setup fails."""
        key = f"{manifest.environment} {sorted(manifest.environment_config.items())}"
        if (task := self._ready.get(key)) is None:
            task = self._ready[key] = asyncio.create_task(self.fresh(manifest))
            task.add_done_callback(lambda done: self._forget_failed(key, done))
        return await asyncio.shield(task)

    async def fresh(self, manifest: RunManifest) -> Environment:
        """An instance of its own, for walking through the dataset from its start."""
        kind, config = manifest.environment, manifest.environment_config
        environment = await asyncio.to_thread(make_environment, kind, config)
        await self.run(environment.setup)
        return environment

    async def draw(self, environment: Environment, number: int) -> tuple[Item, ...]:
        """The next `number` items of its dataset, fewer where that ends. Raises as `run` does."""
        items: tuple[Item, ...] = await self.run(_next_items, environment, number)
        return items

    async def run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call the author's `method` in a thread, awaiting it there if it is a coroutine function.

        Raises EnvironmentFailed with the traceback for what it raises, but Clotho's own errors as they are, and
        HostUnavailable where this machine failed it.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, run_method, method, *arguments
            )
        except ClothoError:
            raise
        except Exception as error:
            if is_host_failure(error):
                raise HostUnavailable(f"in the environment's code: {described(error)}") from error
            raise EnvironmentFailed(_own_frames(error)) from error

    def _forget_failed(self, key: str, task: asyncio.Task[Environment]) -> None:
        if task.cancelled() or task.exception() is not None:
            del self._ready[key]


async def _next_items(environment: Environment, number: int) -> tuple[Item, ...]:
    items: list[Item] = []
    while len(items) < number and (item := await environment.next_item()) is not None:
        items.append(item)
    return tuple(items)


def run_method(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call an author's method in a thread: a coroutine gets an event loop of its own."""
    result = method(*arguments)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def _own_frames(error: Exception) -> str:
    """The traceback without the frames above the author's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename not in (__file__, THREAD_FILE)] or list(frames)
    return "".join([*traceback.format_list(own[-6:]), *traceback.format_exception_only(error)]).strip()
