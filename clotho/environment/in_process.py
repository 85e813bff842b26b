"""An environment in this process: its author's methods, called where they hold up nobody's event loop."""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from clotho.environment.environment import (
    AgentResult,
    Environment,
    Reward,
    Solution,
    checked_metrics,
    checked_reward,
)
from clotho.environment.evaluated import EvaluatedItem
from clotho.environment.functions import DeclaredFunction, declared_functions
from clotho.environment.handles import FunctionCall, FunctionCalls, Opening
from clotho.environment.threads import in_thread
from clotho.environment.tool_context import AsyncToolContext, ContextCalls, ToolContext
from clotho.errors import ClothoError, EnvironmentFailed, HostUnavailable
from clotho.host_failures import described, is_host_failure, raised_by_clotho
from clotho.rollouts.item import Item
from clotho.rollouts.rollout import as_bytes
from clotho.sandbox.item import ItemSandbox
from clotho.tools.tool import Tool, ToolOutcome, is_tool

# a verifier blocks its thread while its commands run
THREADS = 64
MOST_FRAMES = 6


class Runner(Protocol):
    """Calls authors' methods, each in a thread; coroutines are awaited there, or on a loop of the author's."""

    async def __call__(self, method: Callable[..., Any], *arguments: Any) -> Any: ...


class SharedProcess:
    """The runner of a process that does other work, too: each coroutine gets an event loop of its own."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="environment")

    async def __call__(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Raises EnvironmentFailed with the traceback for what `method` raises, but Clotho's errors as they are.

        HostUnavailable where this machine failed it: the author's code shares the process's resources.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, run_method, method, *arguments)
        except ClothoError:
            raise
        except Exception as error:
            if is_host_failure(error):
                raise HostUnavailable(f"in the environment's code: {described(error)}") from error
            raise EnvironmentFailed(own_frames(error)) from error


class OwnProcess:
    """The runner of a process that the author's code has for itself, with one event loop for all coroutines."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = THREADS) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="environment")

    async def __call__(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Raises EnvironmentFailed with the traceback for what `method` raises, but Clotho's errors as they are.

        HostUnavailable where the machine failed Clotho's code: the process's own resources are the author's.
        """
        try:
            return await self.raw(method, *arguments)
        except ClothoError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and raised_by_clotho(error):
                raise HostUnavailable(f"in the environment's process: {described(error)}") from error
            cause = error.__cause__ if isinstance(error, Unusual) else None
            raise EnvironmentFailed(own_frames(cause or error)) from error

    async def raw(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Raises what `method` raises; Unusual for what a future can't hold, such as an exit."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, method, *arguments)

    def _run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            result = method(*arguments)
            if inspect.isawaitable(result):
                return asyncio.run_coroutine_threadsafe(_usual(result), self._loop).result()
            return result
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                raise
            # asyncio's futures refuse StopIteration, and an exit would end the loop that serves the channel
            raise Unusual(described(error)) from error


class Unusual(RuntimeError):
    """The author's code raised an exit or a StopIteration, which is the cause of this."""


async def _usual(result: Awaitable[Any]) -> Any:
    """Await `result`; raise an exit as Unusual, since it would end the author's event loop."""
    try:
        return await result
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise Unusual(described(error)) from error


def run_method(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call an author's method in a thread: a coroutine gets an event loop of its own."""
    result = method(*arguments)
    return asyncio.run(awaited(result)) if inspect.isawaitable(result) else result


async def awaited(result: Awaitable[Any]) -> Any:
    return await result


def own_frames(error: BaseException) -> str:
    """The traceback without the frames above the author's."""
    frames = traceback.extract_tb(error.__traceback__)
    library = (str(Path(asyncio.__file__).parent), str(Path(asyncio.__file__).parent.parent / "concurrent"))
    own = [each for each in frames if each.filename != __file__ and not each.filename.startswith(library)]
    shown = (own or list(frames))[-MOST_FRAMES:]
    return "".join([*traceback.format_list(shown), *traceback.format_exception_only(error)]).strip()


class InProcessEnvironment:
    """An instance in this process, behind the interface that workers call."""

    fingerprint = ""

    def __init__(self, environment: Environment, run: Runner) -> None:
        self.environment = environment
        self.config = environment.config
        self.evaluates = type(environment).evaluate is not Environment.evaluate
        self._run = run
        self.functions = {each.description.name: each for each in functions_of(type(environment))}

    @property
    def tools(self) -> Sequence[Tool]:
        # Imported here: an author's own process offers no tools, and starts sooner without.
        from clotho.environment.tools import own_tools

        return list(own_tools(type(self.environment)))

    async def opening(self, item: Item) -> Opening:
        environment = self.environment
        prompt = await self._run(environment.format_prompt, item)
        files = as_bytes(await self._run(environment.workspace_files, item))
        sandbox = await self._run(environment.sandbox, item)
        return Opening(prompt, files, sandbox, await self._run(environment.time_limit, item))

    async def sandbox(self, item: Item) -> ItemSandbox:
        asked: ItemSandbox = await self._run(self.environment.sandbox, item)
        return asked

    async def hidden_files(self, item: Item) -> Mapping[str, bytes]:
        return as_bytes(await self._run(self.environment.hidden_files, item))

    async def grading_sandbox(self, item: Item) -> ItemSandbox | None:
        asked: ItemSandbox | None = await self._run(self.environment.grading_sandbox, item)
        return asked

    async def solution(self, item: Item) -> Solution:
        solution: Solution = await self._run(self.environment.solution, item)
        return solution

    async def same_item(self, recorded: Item, item: Item) -> bool:
        return bool(await self._run(self.environment.same_item, recorded, item))

    async def verification_seconds(self, item: Item) -> float | None:
        seconds: float | None = await self._run(self.environment.verification_seconds, item)
        return seconds

    async def compute_reward(
        self, item: Item, result: AgentResult, calls: ContextCalls, seconds: float
    ) -> Reward:
        """`seconds` bound nothing here: a thread can't be ended."""
        context = self._context(calls)
        return checked_reward(await self._run(self.environment.compute_reward, item, result, context))

    async def blames_agent(self, item: Item, calls: ContextCalls, seconds: float) -> bool:
        """`seconds` bound nothing here."""
        return bool(await self._run(self.environment.blames_agent, item, self._context(calls)))

    async def evaluate(self, items: Sequence[EvaluatedItem]) -> dict[str, float]:
        return checked_metrics(await self._run(self.environment.evaluate, items))

    async def next_items(self, number: int) -> tuple[Item, ...]:
        drawn: tuple[Item, ...] = await self._run(_next_items, self.environment, number)
        return drawn

    async def call_function(self, call: FunctionCall, calls: FunctionCalls) -> ToolOutcome:
        """Raises TimedOut where the function gives no answer in time: its thread is then left alone."""
        return await called_in_thread(self.functions[call.name], call, calls)

    def _context(self, calls: ContextCalls) -> ToolContext:
        loop = asyncio.get_running_loop()
        return ToolContext(AsyncToolContext(calls, loop), loop)


async def called_in_thread(
    function: DeclaredFunction, call: FunctionCall, calls: FunctionCalls
) -> ToolOutcome:
    """Call a declared function in a thread of its own; raises TimedOut after the call's seconds."""
    loop = asyncio.get_running_loop()
    context = ToolContext(AsyncToolContext(calls, loop), loop)

    async def run(called: Callable[[], Any]) -> Any:
        return await in_thread(called, call.seconds)

    try:
        return await function.call(call.arguments, call.state, context, calls.claim, run)
    finally:
        context.cleanup()  # a function that timed out goes on in its thread: it makes no more calls


async def _next_items(environment: Environment, number: int) -> tuple[Item, ...]:
    items: list[Item] = []
    while len(items) < number and (item := await environment.next_item()) is not None:
        items.append(item)
    return tuple(items)


def own_modules(environment: type[Environment]) -> list[str]:
    """The names of the environment's module and of those of its base classes."""
    return list(
        dict.fromkeys(kind.__module__ for kind in environment.__mro__ if kind not in Environment.__mro__)
    )


def functions_of(environment: type[Environment]) -> Iterator[DeclaredFunction]:
    """The functions that the environment's module, and those of its base classes, declare as tools."""
    seen: set[str] = set()
    for module in own_modules(environment):
        for found in declared_functions(import_module(module)):
            if found.function.__name__ not in seen:  # a base's tool that the module imports, too
                seen.add(found.function.__name__)
                yield found


def tools_in(module: ModuleType) -> Iterator[type[Tool]]:
    """The concrete Tool subclasses that `module` itself defines."""
    for value in vars(module).values():
        if is_tool(value) and value.__module__ == module.__name__:
            yield value


def tool_classes(modules: Sequence[str]) -> Iterator[Tool]:
    """The Tool classes that these modules define."""
    for module in modules:
        yield from (kind() for kind in tools_in(import_module(module)))
