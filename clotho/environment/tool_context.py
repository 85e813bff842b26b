"""The tools in an author's hands: a rollout's workspace, from inside `compute_reward` or a function of a tool."""

import asyncio
import json
import shlex
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from clotho.host_failures import described, is_host_failure

READ_BYTES = 64 << 20
"""Most bytes read of a file by default: an agent can make a sparse file of any size."""
MOST_FILES = 10_000
MOST_DOWNLOADED = 1 << 30
MOST_SAID_CHARS = 500

ToolResult = dict[str, Any]
"""A tool's JSON result, as the model would be shown it."""

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
Method = Callable[Concatenate["AsyncToolContext", Parameters], Coroutine[Any, Any, Result]]


class ContextCalls(Protocol):
    """The calls that a ToolContext makes of the worker, which has the sandbox. They run on one event loop."""

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str: ...

    async def ask_judge(self, prompt: str) -> str | None: ...

    async def read_bytes(self, path: str, max_bytes: int) -> bytes | None: ...

    async def write_bytes(self, path: str, content: bytes) -> None: ...

    async def hidden_files(self) -> str: ...

    async def host_failed(self, reason: str) -> None:
        """Count a failure of the author's machine as an outage, even where the author's code swallows it."""

    @property
    def grading(self) -> "ContextCalls":
        """The calls for a sandbox that has nothing of the agent's."""


def _blocking(
    method: Method[Parameters, Result],
) -> Callable[Concatenate["ToolContext", Parameters], Result]:
    """The method for plain code, whose thread it blocks."""

    @wraps(method)
    def blocking(
        context: "ToolContext", /, *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        return context._wait(method(context.aio, *arguments, **named))

    return blocking


class AsyncToolContext:
    """The tools for an `async def compute_reward`. Numbers its calls in the order in which they are made.

    A path names the same file in all of them: absolute, below ~ (the agent's home), or relative to the directory
    of the last command; the first starts where the agent's shell was, or in the environment's `verifier_cwd`.
    """

    def __init__(self, calls: ContextCalls, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` runs `calls`; the context may be used on other loops."""
        self._calls = calls
        self._loop = loop
        self._ended = False

    async def terminal(self, command: str, timeout: float = 180) -> ToolResult:
        """Run a command; {"output", "exit_code", "error"}. Directory and exports persist between calls."""
        return await self._tool("terminal", command=command, timeout=timeout)

    async def read_file(self, path: str) -> ToolResult:
        """The read_file tool: numbered lines. `read_bytes` gives the file itself."""
        return await self._tool("read_file", path=path)

    async def write_file(self, path: str, content: str) -> ToolResult:
        return await self._tool("write_file", path=path, content=content)

    async def search(self, query: str, path: str = ".") -> ToolResult:
        return await self._tool("search_files", pattern=query, path=path)

    async def web_search(self, query: str) -> ToolResult:
        return await self._tool("web_search", query=query)

    async def web_extract(self, urls: list[str]) -> ToolResult:
        return await self._tool("web_extract", urls=urls)

    async def browser_navigate(self, url: str) -> ToolResult:
        return await self._tool("browser_navigate", url=url)

    async def browser_snapshot(self) -> ToolResult:
        return await self._tool("browser_snapshot")

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Any tool, by name, those of MCP servers included; its result as the model would be shown it.

        A verification that was interrupted in a call which is made at most once begins anew.
        """
        return await self._on_worker(self._calls.call_tool(name, arguments))

    async def ask_judge(self, prompt: str) -> str | None:
        """The answer of the run's judge, a model, to `prompt`; None where the run names none in `services.judge`.

        It is journalled, and paid once however often the verification is tried. Empty where the judge refuses the
        prompt; what the agent wrote is part of it, so read no more out of the answer than a verdict.
        """
        return await self._on_worker(self._calls.ask_judge(prompt))

    async def read_bytes(self, path: str, max_bytes: int = READ_BYTES) -> bytes | None:
        """Read a regular file; None if there is none, or if the agent's links lead out of its folders.

        A file of more than `max_bytes`, which may be 1 GiB at most, is the agent's doing: raises WorkspaceRefused.
        """
        return await self._on_worker(self._calls.read_bytes(path, max_bytes))

    async def write_bytes(self, path: str, content: bytes) -> None:
        """Write a file, making its parents; any size, any bytes. A repeated verification finds it written."""
        await self._on_worker(self._calls.write_bytes(path, content))

    async def hidden_files(self) -> str:
        """The folder that the verifier's commands see the environment's hidden files in."""
        return await self._on_worker(self._calls.hidden_files())

    @property
    def grading(self) -> "AsyncToolContext":
        """The tools in the sandbox of `Environment.grading_sandbox`, made by the first call."""
        return AsyncToolContext(self._calls.grading, self._loop)

    async def upload_file(self, local_path: str, remote_path: str) -> ToolResult:
        content = await self._on_host(Path(local_path).read_bytes)
        await self.write_bytes(remote_path, content)
        return {"success": True, "bytes": len(content)}

    async def upload_dir(self, local_dir: str, remote_dir: str) -> ToolResult:
        """Every regular file below `local_dir`."""
        files = await self._on_host(lambda: [path for path in Path(local_dir).rglob("*") if path.is_file()])
        # a repeated verification has to make its calls in the same order, which rglob doesn't promise
        for path in sorted(files):
            await self.upload_file(str(path), f"{remote_dir}/{path.relative_to(local_dir)}")
        return {"success": True, "files": len(files)}

    async def download_file(self, remote_path: str, local_path: str) -> ToolResult:
        content = await self.read_bytes(remote_path)
        if content is None:
            return {"success": False, "error": f"no regular file {remote_path}"}
        await self._on_host(lambda: _write(Path(local_path), content))
        return {"success": True, "bytes": len(content)}

    async def download_dir(self, remote_dir: str, local_dir: str) -> ToolResult:
        """Every regular file below `remote_dir`: at most 10,000, and 1 GiB of them.

        Names come from the sandbox: those that leave it are refused.
        """
        folder = shlex.quote(remote_dir)
        # through a file: a command's output is cut; in a subshell: the next command starts where this one ends
        listing = await self.terminal(
            f'(names=$(mktemp) && cd -- {folder} && find . -type f -print0 > "$names" && echo "$names")'
        )
        if listing["exit_code"] != 0:
            return {"success": False, "error": listing["output"]}
        found = await self.read_bytes(listing["output"].strip())
        names = [name for name in (found or b"").decode(errors="replace").split("\0") if name]
        if found is None or len(names) > MOST_FILES:
            return {"success": False, "error": f"more than {MOST_FILES} files in {remote_dir}"}
        left, failures = MOST_DOWNLOADED, list[str]()
        for name in names:
            if (local := _inside(local_dir, name)) is None:
                return {"success": False, "error": f"{name!r} is outside {remote_dir}"}
            taken = await self.download_file(f"{remote_dir}/{name}", str(local))
            left -= taken.get("bytes", 0)
            if left < 0:
                return {"success": False, "error": f"more than {MOST_DOWNLOADED} bytes in {remote_dir}"}
            failures += [] if taken["success"] else [taken["error"]]
        done = len(names) - len(failures)
        if failures:
            # the others are there: a log with an odd name doesn't cost a verifier all logs
            return {"success": False, "files": done, "error": "; ".join(failures)[:MOST_SAID_CHARS]}
        return {"success": True, "files": done}

    async def cleanup(self) -> None:
        """End the context: calls raise RuntimeError from now on. The rollout releases its sandbox when it ends."""
        self._ended = True

    async def _tool(self, name: str, **arguments: Any) -> ToolResult:
        result: ToolResult = json.loads(await self.call_tool(name, arguments))
        return result

    async def _on_host(self, step: Callable[[], Result]) -> Result:
        """Run `step` on this host: a wrong path is the author's error, a failure of the host an outage."""
        self._require_open()
        try:
            return await asyncio.to_thread(step)
        except Exception as error:
            if is_host_failure(error):
                await self._on_worker(self._calls.host_failed(described(error)))
            raise

    async def _on_worker(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Make `call` on the event loop of the calls: an author's code has another."""
        try:
            self._require_open()
        except RuntimeError:
            # Python would warn of a coroutine that nobody awaits
            call.close()
            raise
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def _require_open(self) -> None:
        if self._ended:
            raise RuntimeError("this context was ended by cleanup(): call it after the last use")


class ToolContext:
    """The tools for a plain `compute_reward`; each call blocks its thread. `aio` has the same for `async def`."""

    def __init__(self, aio: AsyncToolContext, loop: asyncio.AbstractEventLoop) -> None:
        self.aio = aio
        self._loop = loop

    terminal = _blocking(AsyncToolContext.terminal)
    read_file = _blocking(AsyncToolContext.read_file)
    write_file = _blocking(AsyncToolContext.write_file)
    search = _blocking(AsyncToolContext.search)
    web_search = _blocking(AsyncToolContext.web_search)
    web_extract = _blocking(AsyncToolContext.web_extract)
    browser_navigate = _blocking(AsyncToolContext.browser_navigate)
    browser_snapshot = _blocking(AsyncToolContext.browser_snapshot)
    call_tool = _blocking(AsyncToolContext.call_tool)
    ask_judge = _blocking(AsyncToolContext.ask_judge)
    read_bytes = _blocking(AsyncToolContext.read_bytes)
    write_bytes = _blocking(AsyncToolContext.write_bytes)
    upload_file = _blocking(AsyncToolContext.upload_file)
    upload_dir = _blocking(AsyncToolContext.upload_dir)
    download_file = _blocking(AsyncToolContext.download_file)
    download_dir = _blocking(AsyncToolContext.download_dir)

    @property
    def hidden_files(self) -> str:
        """The folder that the verifier's commands see the environment's hidden files in."""
        return self._wait(self.aio.hidden_files())

    @property
    def grading(self) -> "ToolContext":
        """The tools in the sandbox of `Environment.grading_sandbox`, made by the first call."""
        return ToolContext(self.aio.grading, self._loop)

    def cleanup(self) -> None:
        """End the context: calls raise RuntimeError from now on. The rollout releases its sandbox when it ends."""
        # not on the event loop: code there calls this, too, and would wait for itself
        self.aio._ended = True

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _inside(folder: str, name: str) -> Path | None:
    """The path of `name` below `folder`, links followed; None if it leads elsewhere."""
    target = Path(folder).resolve()
    path = (target / name).resolve()
    return path if path.is_relative_to(target) else None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
