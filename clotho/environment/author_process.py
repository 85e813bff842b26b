"""The program of a process for an author's code: one instance, whose methods a worker calls over a channel.

    python -m clotho.application clotho.environment.author_process FD PARENT

It imports little, starts in half a second, and ends with the worker that started it.
"""

import asyncio
import ctypes
import itertools
import os
import resource
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from clotho.environment.channel import Channel, Closed, Message, error_fields, error_of, packed_files
from clotho.environment.code import Code, KeptModules
from clotho.environment.environment import AgentResult
from clotho.environment.evaluated import EVALUATED
from clotho.environment.handles import FunctionCall
from clotho.environment.in_process import InProcessEnvironment, OwnProcess, own_frames, own_modules, tools_in
from clotho.environment.loading import make_environment
from clotho.environment.tool_context import AsyncToolContext, ToolContext
from clotho.errors import ClothoError, EnvironmentFailed
from clotho.escaping import truncate_middle
from clotho.host_failures import described
from clotho.tools.results import refusal

PR_SET_PDEATHSIG = 1
MOST_DESCRIPTORS = 1024
"""Descriptors of a process: one that leaks them meets its own bound, never its worker's."""

Blobs = Sequence[bytes]
Fields = Mapping[str, Any]


class WorkerCalls:
    """The calls of a ToolContext, which the worker makes."""

    def __init__(self, ask: Callable[..., Awaitable[Message]], request: int, graded: bool = False) -> None:
        self._ask = ask
        self._place = {"of": request, "grading": graded}

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        return str(await self._ask_worker("call_tool", name=name, arguments=arguments))

    async def ask_judge(self, prompt: str) -> str | None:
        answer = await self._ask_worker("ask_judge", prompt=prompt)
        return None if answer is None else str(answer)

    async def read_bytes(self, path: str, max_bytes: int) -> bytes | None:
        fields = {**self._place, "ask": "read_bytes", "path": path, "max_bytes": max_bytes}
        answer = await self._ask(fields, ())
        return answer.blobs[0] if answer.blobs else None

    async def write_bytes(self, path: str, content: bytes) -> None:
        await self._ask({**self._place, "ask": "write_bytes", "path": path}, (content,))

    async def hidden_files(self) -> str:
        return str(await self._ask_worker("hidden_files"))

    async def host_failed(self, reason: str) -> None:
        await self._ask_worker("host_failed", reason=reason)

    async def claim(self) -> bool:
        return bool(await self._ask_worker("claim"))

    async def extend(self, seconds: float) -> None:
        await self._ask_worker("extend", seconds=seconds)

    @property
    def grading(self) -> "WorkerCalls":
        return WorkerCalls(self._ask, self._place["of"], graded=True)

    async def _ask_worker(self, ask: str, **fields: Any) -> Any:
        return (await self._ask({**self._place, "ask": ask, **fields}, ())).fields.get("answer")


class AuthorProcess:
    """The process's end of the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._unanswered: dict[int, asyncio.Future[Message]] = {}
        self._numbers = itertools.count()
        self._requests: set[asyncio.Task[None]] = set()
        self._author: InProcessEnvironment | None = None
        self._run = OwnProcess(_loop_of_the_author())

    async def serve(self) -> None:
        """Answer the worker's calls. Raises Closed once the worker has closed the channel."""
        while True:
            message = await self._channel.receive()
            if "reply" in message.fields:
                answered = self._unanswered.pop(message.fields["reply"])
                if "error" in message.fields:
                    answered.set_exception(error_of(message.fields))
                else:
                    answered.set_result(message)
                continue
            request = asyncio.create_task(self._serve(message))
            self._requests.add(request)
            request.add_done_callback(self._forget)

    def _forget(self, request: "asyncio.Task[None]") -> None:
        self._requests.discard(request)
        if not request.cancelled() and (error := request.exception()) is not None:
            traceback.print_exception(error)
            os._exit(1)  # the worker would wait for its answer

    async def _serve(self, message: Message) -> None:
        number = message.fields["request"]
        try:
            answer = await self._answer(message.fields["method"], number, message.fields, message.blobs)
        except ClothoError as error:
            answer = Message(error_fields(error))
        except Exception as error:  # what the author's code returned can't be used
            answer = Message(error_fields(EnvironmentFailed(own_frames(error))))
        usage = {"descriptors": _descriptors()}
        try:
            await self._channel.send(Message({**answer.fields, **usage, "answered": number}, answer.blobs))
        # json.dumps raises before a byte is written: the channel can still take another message
        except (TypeError, ValueError) as error:
            fields = error_fields(EnvironmentFailed(f"its answer isn't JSON: {described(error)}"))
            await self._channel.send(Message({**fields, **usage, "answered": number}))

    async def _answer(self, method: str, number: int, fields: Fields, blobs: Blobs) -> Message:
        if method == "start":
            return await self._start(fields, blobs)
        author = self._author
        assert author is not None, "a method was called before the start"
        calls = WorkerCalls(self._ask, number)
        match method:
            case "opening":
                opening = await author.opening(fields["item"])
                paths, contents = packed_files(opening.files)
                sandbox = opening.sandbox.model_dump(mode="json")
                parts = {"prompt": opening.prompt, "sandbox": sandbox, "seconds": opening.seconds}
                return Message({**parts, "paths": paths}, contents)
            case "sandbox":
                return Message({"sandbox": (await author.sandbox(fields["item"])).model_dump(mode="json")})
            case "hidden_files":
                paths, contents = packed_files(await author.hidden_files(fields["item"]))
                return Message({"paths": paths}, contents)
            case "grading_sandbox":
                asked = await author.grading_sandbox(fields["item"])
                return Message({"sandbox": None if asked is None else asked.model_dump(mode="json")})
            case "solution":
                solution = await author.solution(fields["item"])
                paths, contents = packed_files(solution.files)
                return Message(
                    {"command": solution.command, "seconds": solution.seconds, "paths": paths}, contents
                )
            case "same_item":
                return Message({"same": await author.same_item(fields["recorded"], fields["item"])})
            case "compute_reward":
                return await self._compute_reward(author, fields, blobs, calls)
            case "blames_agent":
                # it tries the verifier once more, which may take as long as a verification
                if (seconds := await author.verification_seconds(fields["item"])) is not None:
                    await calls.extend(seconds)
                return Message({"blames": await author.blames_agent(fields["item"], calls, 0.0)})
            case "evaluate":
                return Message({"metrics": await author.evaluate(EVALUATED.validate_json(blobs[0]))})
            case "next_items":
                return Message({"items": await author.next_items(fields["number"])})
            case "call_function":
                return await self._call_function(author, fields, calls)
        raise AssertionError(method)

    async def _start(self, fields: Fields, blobs: Blobs) -> Message:
        """Make the instance from the code that the worker sent, and set it up."""
        if blobs:
            # First: the folders on the path may have a newer version than the one that the run began with.
            sys.meta_path.insert(0, KeptModules(Code.model_validate_json(blobs[0])))
        environment = await self._run(make_environment, fields["environment"], fields["config"])
        kind = type(environment)
        author = InProcessEnvironment(environment, self._run)
        await self._run(environment.setup)
        self._author = author
        modules = own_modules(kind)
        return Message(
            {
                "config": environment.config.model_dump(mode="json"),
                "functions": [each.description.model_dump() for each in author.functions.values()],
                # the worker imports these modules itself: calls of Tool classes are made there
                "tool_modules": [name for name in modules if any(tools_in(sys.modules[name]))],
                "evaluates": author.evaluates,
                "max_processes": kind.max_processes,
            }
        )

    async def _compute_reward(
        self, author: InProcessEnvironment, fields: Fields, blobs: Blobs, calls: WorkerCalls
    ) -> Message:
        item = fields["item"]
        if (asked := await author.verification_seconds(item)) is not None:
            await calls.extend(asked)
        result = AgentResult.model_validate_json(blobs[0])
        # 0.0 bounds nothing: the worker watches the time, and kills this process
        reward = await author.compute_reward(item, result, calls, 0.0)
        names, contents = packed_files(reward.artifacts)
        shown = {"score": reward.score, "breakdown": reward.breakdown, "log": reward.log}
        return Message({**shown, "artifacts": names}, contents)

    async def _call_function(
        self, author: InProcessEnvironment, fields: Fields, calls: WorkerCalls
    ) -> Message:
        call = FunctionCall(fields["name"], fields["arguments"], fields["state"], fields["seconds"])
        loop = asyncio.get_running_loop()
        context = ToolContext(AsyncToolContext(calls, loop), loop)
        function = author.functions[call.name]
        try:
            made = await function.call(call.arguments, call.state, context, calls.claim, self._run.raw)
        except ClothoError:
            raise
        except Exception as error:
            made = refusal(f"Tool execution failed: {truncate_middle(described(error))}")
        finally:
            context.cleanup()  # a thread that the function has left behind makes no more calls
        return Message({"outcome": made.model_dump(mode="json")})

    async def _ask(self, fields: dict[str, Any], blobs: Blobs) -> Message:
        number = next(self._numbers)
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._unanswered[number] = answered
        try:
            await self._channel.send(Message({**fields, "id": number}, blobs))
        except (TypeError, ValueError):
            del self._unanswered[number]
            raise
        return await answered


def _descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # all are used up
        return MOST_DESCRIPTORS


def _loop_of_the_author() -> asyncio.AbstractEventLoop:
    """Start a loop in a thread for the author's coroutines: one that blocks doesn't hold up the channel."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="author", daemon=True).start()
    return loop


def _bind_to_worker(parent: int) -> None:
    """End with the worker, and have no more descriptors than an author's code needs."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # a worker that died before this prctl causes no signal any more
    if os.getppid() != parent:
        os._exit(1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Such a process may have gigabytes, whose dump would fill the host's disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


async def _serve(end: socket.socket) -> None:
    process = AuthorProcess(await Channel.over(end))
    try:
        await process.serve()
    except Closed:
        return


def main() -> NoReturn:
    descriptor, parent = map(int, sys.argv[1:3])
    _bind_to_worker(parent)
    # an author's module may parse the command line
    sys.argv[1:] = []
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        asyncio.run(_serve(socket.socket(fileno=descriptor)))
    finally:
        sys.stdout.flush()
        os._exit(0)  # without waiting for the author's threads


if __name__ == "__main__":
    main()
