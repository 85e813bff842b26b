"""One item of an environment in a real sandbox, for an author's tests: no Temporal, no model, no journal."""

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from clotho.config import Settings, load_settings, variable
from clotho.embedded.services import destroy_sandboxes
from clotho.environment import AgentResult, Environment, Reward, ToolContext
from clotho.environment.environment import checked_reward
from clotho.environment.in_process import run_method
from clotho.environment.loading import sources_of
from clotho.environment.tool_context import AsyncToolContext
from clotho.environment.tools import own_tools
from clotho.environment.workspace import Workspace
from clotho.errors import EnvironmentFailed, InvalidInput, WorkspaceRefused
from clotho.identifiers.ids import call_id, job_key
from clotho.models.messages import ChatMessage, ToolCall
from clotho.rollouts.call import ToolError, tool_error
from clotho.rollouts.item import Item
from clotho.rollouts.rollout import as_bytes
from clotho.rollouts.run import SETTINGS, ToolSelection
from clotho.runs.request import configured_tools, tool_selection
from clotho.sandbox.backend import WORKSPACE, SandboxBackend, SandboxInstance, SandboxSpec
from clotho.sandbox.config import LocalConfig, chosen_backend
from clotho.sandbox.healthcheck import until_healthy
from clotho.sandbox.item import ItemSandbox
from clotho.sandbox.registry import open_backend
from clotho.sandbox.verification import VerifierSetup
from clotho.testing.script import ScriptedCall, ScriptedTurn
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.resolution import resolve
from clotho.tools.shell import last_job
from clotho.tools.source import ProbedSandbox, ToolSources
from clotho.tools.tool import CallContext, Tool

ROLLOUT, LEASE, PROBE = "test", "test/lease/0", "test/lease/1"
THREADS = 4
"""A verifier waits in one of them while its hidden files are asked for in another."""

Result = TypeVar("Result")
EnvironmentLike = type[Environment] | Environment


@contextmanager
def sandboxed_context(environment: EnvironmentLike, item: Item | int = 0) -> Iterator["SandboxedTask"]:
    """A task in a real sandbox: `item` itself, or the environment's item of that number.

    `environment` is a class, which gets its default configuration, or an instance. Its `setup` is called, and its
    `workspace_files` are put into the sandbox. Works in plain and in `async` tests. The sandbox is destroyed at the
    end. Raises what the environment raises, and IsolationUnavailable where this host can't isolate a sandbox.
    """
    settings = load_settings()
    made = environment(environment.config_class()) if isinstance(environment, type) else environment
    # a folder of its own: tests that run side by side don't meet
    root = settings.sandbox.folder_of(f"test-{uuid.uuid4()}")
    with _event_loop() as loop, ThreadPoolExecutor(THREADS, thread_name_prefix="environment") as threads:
        task = SandboxedTask(made, open_backend(settings, root), loop, threads)
        try:
            task._prepare(item, settings)
            yield task
        finally:
            task._wait(task._sources.close())
            task._wait(destroy_sandboxes(settings, root))


class SandboxedTask:
    """One item: act on it as the agent with `agent` or `play`, then score what was done with `reward`."""

    environment: Environment
    item: Item
    agent: ToolContext
    """The tools in the agent's hands, until `verifier` or `reward` is used: then its processes have ended."""

    def __init__(
        self,
        environment: Environment,
        backend: SandboxBackend,
        loop: asyncio.AbstractEventLoop,
        threads: ThreadPoolExecutor,
    ) -> None:
        self.environment = environment
        kind = type(environment)
        self._name = f"{kind.__module__}:{kind.__name__}"
        self._backend = backend
        self._loop = loop
        self._threads = threads
        self._registry = Registry([*Registry.discover(), *own_tools(kind)])
        self._sources = ToolSources(variable)
        self._turns: list[ScriptedTurn] = []
        self._messages: list[dict[str, Any]] = []
        self._errors: list[ToolError] = []
        self._epoch = 0

    @property
    def result(self) -> AgentResult:
        """The agent's result that `compute_reward` is given."""
        return AgentResult(
            messages=list(self._messages),
            turns_used=len(self._turns),
            finished_naturally=not self._turns or not self._turns[-1].calls,
            reasoning_per_turn=[turn.reasoning for turn in self._turns],
            tool_errors=list(self._errors),
        )

    def play(self, *turns: ScriptedTurn | ScriptedCall) -> AgentResult:
        """Run the tool calls of `turns` as a rollout would: only tools that the environment enables are there."""
        for turn in turns:
            self._play(ScriptedTurn(calls=(turn,)) if isinstance(turn, ScriptedCall) else turn)
        return self.result

    def verifier(self) -> ToolContext:
        """The tools as `compute_reward` gets them: a fresh instance over the agent's files and hidden ones."""
        return self._context(self._verifier_workspace())

    def reward(self, result: AgentResult | None = None) -> Reward:
        """The reward of `compute_reward`, checked as in a rollout; its exceptions are raised."""
        workspace = self._verifier_workspace()
        try:
            returned = self._run(
                self.environment.compute_reward, self.item, result or self.result, self._context(workspace)
            )
        except WorkspaceRefused as refused:
            return Reward(score=0.0, log=str(refused))
        except Exception:
            if workspace.failure is not None:
                # rather than what the author's code made of it
                raise workspace.failure from None
            raise
        # also where the verifier caught it: no failure of the sandbox becomes a reward
        if workspace.failure is not None:
            raise workspace.failure
        return checked_reward(returned)

    def _prepare(self, item: Item | int, settings: Settings) -> None:
        self._run(self.environment.setup)
        self.item = self._drawn(item) if isinstance(item, int) else item
        config = self.environment.config
        files = self._run(self.environment.workspace_files, self.item)
        prompt = self._run(self.environment.format_prompt, self.item)
        self._messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        self._settings = configured_tools(config)
        asked = settings.run
        bounds: dict[str, Any] = {
            name: value for name in SETTINGS["sandbox"] if (value := getattr(asked, name, None)) is not None
        }
        if asked.sandbox is not None or asked.image is not None:
            bounds["backend"] = chosen_backend(asked.sandbox, asked.image, LocalConfig())
        run = SandboxSpec(writable_roots=config.writable_roots, aliases=config.path_aliases, **bounds)
        self._asked: ItemSandbox = self._run(self.environment.sandbox, self.item)
        spec = self._asked.spec(run, variable)

        async def create() -> SandboxInstance:
            # kept from the sandbox: the environment's source may hold the solutions
            private = await asyncio.to_thread(sources_of, self._name)
            return await self._created(LEASE, self._asked, spec, private, as_bytes(files))

        async def attached() -> SandboxInstance:
            return self._sandbox

        async def brought(selection: ToolSelection) -> list[Tool]:
            probed = None
            if self._sources.needs_sandbox(self._settings, selection.enables):
                instance = await self._created(PROBE, self._asked, spec, (), as_bytes(files))
                probed = ProbedSandbox(instance, ("tools",), self._settings.terminal_cwd)
            return await self._sources.tools(self._settings, selection.enables, probed)

        self._run_spec = run
        selection = tool_selection(config, self._registry)
        self._registry = self._registry.with_tools(self._wait(brought(selection)))
        self._dispatcher = Dispatcher(self._registry, variable)
        resolution = resolve(
            self._registry,
            selection.enabled,
            selection.disabled,
            selection.distribution,
            settings=self._settings,
        )
        self._offered = tuple(tool.name for tool in resolution.tools)
        self._sandbox = self._wait(create())
        self._workspace = self._workspace_of(attached, lease=0)
        self.agent = self._context(self._workspace)

    async def _created(
        self,
        key: str,
        asked: ItemSandbox,
        spec: SandboxSpec,
        private: Sequence[Path],
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> SandboxInstance:
        sandbox = await self._backend.create(key, spec, private=private)
        for path, content in files.items():
            await sandbox.write_file(path, content)
        if asked.healthcheck is not None:
            await until_healthy(sandbox, asked.healthcheck, partial(job_key, key, "healthcheck"))
        return sandbox

    def _drawn(self, number: int) -> Item:
        for _ in range(number + 1):
            item: Item | None = self._run(self.environment.next_item)
            if item is None:
                raise InvalidInput(f"the environment has no item {number}, counted from 0")
        assert item is not None
        return item

    def _play(self, turn: ScriptedTurn) -> None:
        number = len(self._turns)
        self._turns.append(turn)
        said = turn.message(f"call-{call_id(number, index)}" for index in count())
        self._messages.append(said.wire())
        for index, call in enumerate(said.tool_calls):
            self._call(number, index, call)

    def _call(self, turn: int, index: int, call: ToolCall) -> None:
        context = CallContext(
            rollout=ROLLOUT,
            call=("call", call_id(turn, index)),
            lease=0,
            tool_call_id=call.id,
            settings=self._settings,
            state=self._workspace.state,
            instance=self._sandbox,
        )
        name, arguments = call.function.name, call.function.arguments
        done = self._wait(self._dispatcher.run(name, arguments, self._offered, context))
        self._workspace.state.update(done.state)
        answer = ChatMessage(role="tool", tool_call_id=call.id, name=name, content=done.content)
        self._messages.append(answer.wire())
        if (error := tool_error(turn, done)) is not None:
            self._errors.append(error)

    def _verifier_workspace(self) -> Workspace:
        epoch, config, asked = self._epoch, self.environment.config, self._asked
        keep_services = config.keep_services if asked.keep_services is None else asked.keep_services
        self._epoch += 1
        start = job_key("verifier", epoch, "start")
        setup = VerifierSetup(
            start=start,
            after=last_job(self._workspace.state) if config.verifier_cwd is None else None,
            directory=config.verifier_cwd or WORKSPACE,
            trust_workspace=config.trust_workspace,
        )

        async def open_instance() -> SandboxInstance:
            method = self.environment.hidden_files
            # in another thread than the verifier's, which waits for this sandbox
            hidden = await asyncio.wrap_future(self._threads.submit(method, self.item))
            if keep_services:
                return await self._backend.verify_in_place(LEASE, self._sandbox.incarnation, setup=setup)
            return await self._backend.open_verifier(LEASE, epoch, as_bytes(hidden), setup=setup)

        return self._workspace_of(open_instance, start)

    async def _open_grading(self) -> SandboxInstance:
        method = self.environment.grading_sandbox
        asked = await asyncio.wrap_future(self._threads.submit(method, self.item))
        if asked is None:
            raise EnvironmentFailed("ctx.grading: grading_sandbox of the environment gives no sandbox")
        key = f"{LEASE}/grading/{self._epoch}"
        return await self._created(key, asked, asked.spec(self._run_spec, variable), ())

    def _workspace_of(
        self,
        opened: Callable[[], Coroutine[Any, Any, SandboxInstance]],
        start: str | None = None,
        lease: int | None = None,
    ) -> Workspace:
        return Workspace(
            rollout=ROLLOUT,
            place=("verify", self._epoch),
            open=opened,
            open_grading=self._open_grading,
            dispatcher=self._dispatcher,
            tools=self._registry.names,
            settings=self._settings,
            start=start,
            lease=lease,
        )

    def _context(self, workspace: Workspace) -> ToolContext:
        return ToolContext(AsyncToolContext(workspace, self._loop), self._loop)

    def _run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call the author's `method` as workers do."""
        return self._threads.submit(run_method, method, *arguments).result()

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread: the tools block their caller, which may be a test with a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="sandbox")
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
