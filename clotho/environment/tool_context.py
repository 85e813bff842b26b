"""The tools in an author's hands: a rollout's workspace, from inside `compute_reward` or a function of a tool."""

import asyncio
import json
import shlex
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from clotho.errors import CommandConflict, EnvironmentFailed, FileRefused, WorkspaceRefused
from clotho.identifiers.hashed import job_key
from clotho.tools.claims import is_first
from clotho.tools.results import INTERRUPTED, problem
from clotho.tools.shell import last_job
from clotho.tools.tool import CallContext

if TYPE_CHECKING:  # an author's module needs none of the dispatch of tools
    from clotho.environment.workspace import Workspace

READ_BYTES = 64 << 20
"""Most bytes read of a file by default: an agent can make a sparse file of any size."""
LARGEST_FILE = 1 << 30
MOST_FILES = 10_000
MOST_DOWNLOADED = 1 << 30
UNLIMITED = 1 << 40
A_DAY = 86_400.0

ToolResult = dict[str, Any]
"""A tool's JSON result, as the model would be shown it."""

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
Method = Callable[Concatenate["AsyncToolContext", Parameters], Coroutine[Any, Any, Result]]


def _on_worker(method: Method[Parameters, Result]) -> Method[Parameters, Result]:
    """Run a method on the worker's event loop, to which the sandbox belongs: rewards run beside it."""

    @wraps(method)
    async def on_worker(
        context: "AsyncToolContext", /, *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        context._require_open()
        work = context._workspace.watched(method(context, *arguments, **named))
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, context._loop))

    return on_worker


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

    def __init__(self, workspace: "Workspace", loop: asyncio.AbstractEventLoop) -> None:
        self._workspace = workspace
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

    @_on_worker
    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Any tool, by name, those of MCP servers included; its result as the model would be shown it.

        A verification that was interrupted in a call which is made at most once begins anew.
        """
        workspace = self._workspace
        number, workspace.calls = workspace.calls, workspace.calls + 1
        place = "-".join(map(str, workspace.place))
        claims: list[bool] = []

        async def claim() -> bool:
            claims.append(await is_first(workspace.once, f"{place}-{number}-claim"))
            return claims[-1]

        unlimited = {
            "longest_command_seconds": A_DAY,
            "max_result_chars": UNLIMITED,
            "max_turn_chars": UNLIMITED,
            "result_chars": {},
        }
        call = CallContext(
            rollout=workspace.rollout,
            call=(*workspace.place, number),
            lease=workspace.lease,
            tool_call_id=f"{workspace.place[0]}-{number}",
            settings=workspace.settings.model_copy(update=unlimited),
            instance=await workspace.instance(),
            state=workspace.state,
            claim=claim,
            once=lambda name, work: workspace.once(f"{place}-{number}-{name}", work),
        )
        dispatched = await workspace.dispatcher.run(name, json.dumps(arguments), workspace.tools, call)
        if False in claims and dispatched.content == problem(INTERRUPTED).content:
            raise CommandConflict(f"{name}: {INTERRUPTED}")
        workspace.state.update(dispatched.state)
        return dispatched.content

    @_on_worker
    async def ask_judge(self, prompt: str) -> str | None:
        """The answer of the run's judge, a model, to `prompt`; None where the run names none in `services`.

        It is journalled, and paid once however often the verification is tried. Empty where the judge refuses the
        prompt; what the agent wrote is part of it, so read no more out of the answer than a verdict.
        """
        from clotho.tools.services.asking import Asker  # the client of its API takes a second to import

        workspace = self._workspace
        judge = workspace.settings.services.judge
        if judge is None:
            return None
        number, workspace.asked[prompt] = workspace.asked[prompt], workspace.asked[prompt] + 1
        asker = Asker(workspace.once, workspace.dispatcher.variable, job_key(workspace.rollout, "judge"))
        return await asker.verdict(judge, prompt, number)

    @_on_worker
    async def read_bytes(self, path: str, max_bytes: int = READ_BYTES) -> bytes | None:
        """A regular file's content, None if there is none, or if the agent's links lead out of its folders.

        A file of more than `max_bytes`, which may be 1 GiB at most, is the agent's doing: raises WorkspaceRefused.
        """
        instance, max_bytes = await self._workspace.instance_to_read(path), min(max_bytes, LARGEST_FILE)
        file = await instance.read_file(path, max_bytes, last_job(self._workspace.state))
        if file.error == "too_large":
            raise WorkspaceRefused(f"{path} is larger than {max_bytes} bytes")
        return None if file.error else file.content

    @_on_worker
    async def write_bytes(self, path: str, content: bytes) -> None:
        """Write a file, making its parents; any size, any bytes. A repeated verification finds it written."""
        key = self._workspace.write_key(path)
        instance = await self._workspace.instance()
        try:
            await instance.write_file(path, content, last_job(self._workspace.state), key)
        except FileRefused as refused:
            if instance.is_agents(path):
                raise WorkspaceRefused(f"writing {refused}") from refused
            raise

    @_on_worker
    async def hidden_files(self) -> str:
        """The folder that the verifier's commands see the environment's hidden files in."""
        folder = (await self._workspace.instance()).hidden_files
        if folder is None:
            raise EnvironmentFailed(
                "keep_services: there are no hidden files where the agent's processes live"
            )
        return folder

    @property
    def grading(self) -> "AsyncToolContext":
        """The tools in the sandbox of `Environment.grading_sandbox`, made by the first call."""
        return AsyncToolContext(self._workspace.grading, self._loop)

    async def upload_file(self, local_path: str, remote_path: str) -> ToolResult:
        content = await self._on_host(Path(local_path).read_bytes)
        await self.write_bytes(remote_path, content)
        return {"success": True, "bytes": len(content)}

    async def upload_dir(self, local_dir: str, remote_dir: str) -> ToolResult:
        """Every regular file below `local_dir`."""
        files = await self._on_host(lambda: [path for path in Path(local_dir).rglob("*") if path.is_file()])
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
        listing = await self.terminal(
            f'(names=$(mktemp) && cd -- {folder} && find . -type f -print0 > "$names" && echo "$names")'
        )
        if listing["exit_code"] != 0:
            return {"success": False, "error": listing["output"]}
        found = await self.read_bytes(listing["output"].strip())
        names = [name for name in (found or b"").decode(errors="replace").split("\0") if name]
        if found is None or len(names) > MOST_FILES:
            return {"success": False, "error": f"more than {MOST_FILES} files in {remote_dir}"}
        left = MOST_DOWNLOADED
        for name in names:
            if (local := _inside(local_dir, name)) is None:
                return {"success": False, "error": f"{name!r} is outside {remote_dir}"}
            left -= (await self.download_file(f"{remote_dir}/{name}", str(local))).get("bytes", 0)
            if left < 0:
                return {"success": False, "error": f"more than {MOST_DOWNLOADED} bytes in {remote_dir}"}
        return {"success": True, "files": len(names)}

    async def cleanup(self) -> None:
        """End the context: calls raise RuntimeError from now on. The rollout releases its sandbox when it ends."""
        self._ended = True

    async def _tool(self, name: str, **arguments: Any) -> ToolResult:
        result: ToolResult = json.loads(await self.call_tool(name, arguments))
        return result

    async def _on_host(self, step: Callable[[], Result]) -> Result:
        self._require_open()
        return await self._workspace.on_host(step)

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
