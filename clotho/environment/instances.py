"""The environments that one process calls: each in processes of its author's own, or here."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Self

from clotho.environment.code import Code, read_code
from clotho.environment.handles import EnvironmentHandle
from clotho.environment.in_process import InProcessEnvironment, SharedProcess, tool_classes
from clotho.environment.kept_code import KeptCode
from clotho.environment.loading import make_environment, module_of
from clotho.environment.pool import Pool, ProcessBounds
from clotho.environment.pooled import PooledEnvironment
from clotho.environment.processes import AuthorCode
from clotho.errors import EnvironmentFailed
from clotho.journal import Journal
from clotho.rollouts.run import RunManifest

BOUNDS = ProcessBounds()
MOST_POOLS = 64
"""Environments, or versions of their code, whose processes are kept; the one that was idle longest goes first."""


class Environments(ABC):
    """The environments of runs.

    Their methods raise InvalidInput for an unknown environment or a bad configuration, EnvironmentFailed if its
    setup fails.
    """

    @abstractmethod
    async def get(self, manifest: RunManifest) -> EnvironmentHandle:
        """The run's environment, with the code that the run uses now."""

    async def known(self, manifest: RunManifest) -> EnvironmentHandle:
        """Like `get`, with the code that this process last found the run to use."""
        return await self.get(manifest)

    @abstractmethod
    def enumeration(self, manifest: RunManifest) -> AbstractAsyncContextManager[EnvironmentHandle]:
        """An instance for the time of the body, whose dataset is at its start."""

    async def close(self) -> None:  # noqa: B027  # instances of this process end with it
        """End what was started for them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class EnvironmentProcesses(Environments):
    """Keeps warm processes for each environment, configuration and code.

    Without a journal, code is what is on the disk.
    """

    def __init__(self, journal: Journal | None = None, bounds: ProcessBounds = BOUNDS) -> None:
        self._kept = None if journal is None else KeptCode(journal)
        self._bounds = bounds
        self._pools: dict[str, _Served] = {}

    async def get(self, manifest: RunManifest) -> EnvironmentHandle:
        return (await self._served(manifest, current=True)).handle

    async def known(self, manifest: RunManifest) -> EnvironmentHandle:
        return (await self._served(manifest, current=False)).handle

    @asynccontextmanager
    async def enumeration(self, manifest: RunManifest) -> AsyncIterator[EnvironmentHandle]:
        served = await self._served(manifest, current=True)
        async with served.pool.lent(undrawn=True) as process:
            yield PooledEnvironment(served.pool, process.facts, served.handle.fingerprint, process=process)

    async def close(self) -> None:
        pools = [each.pool for each in self._pools.values()]
        self._pools.clear()
        await asyncio.gather(*(pool.close() for pool in pools))

    async def _served(self, manifest: RunManifest, current: bool) -> "_Served":
        code = await self._code(manifest, current)
        fingerprint = "" if code is None else code.fingerprint
        key = f"{manifest.environment} {fingerprint} {sorted(manifest.environment_config.items())}"
        # popped and put back: the dictionary's order is that of the last use, which `_end_oldest` goes by
        if (served := self._pools.pop(key, None)) is None:
            # no await before it is in the dictionary: a second caller finds the pool, and waits for its process
            served = _Served(Pool(self._author_code(manifest, code), self._bounds))
        self._pools[key] = served
        await served.prepare(manifest, fingerprint)
        await self._end_oldest()
        return served

    def _author_code(self, manifest: RunManifest, code: Code | None) -> AuthorCode:
        names = manifest.environment_config.get("variables")
        variables = tuple(map(str, names)) if isinstance(names, list) else ()
        return AuthorCode(manifest.environment, manifest.environment_config, code, variables)

    async def _code(self, manifest: RunManifest, current: bool) -> Code | None:
        if self._kept is None:
            return await asyncio.to_thread(read_code, module_of(manifest.environment))
        return await (self._kept.current(manifest) if current else self._kept.known(manifest))

    async def _end_oldest(self) -> None:
        while len(self._pools) > MOST_POOLS:
            oldest = next((key for key, each in self._pools.items() if not each.pool.busy), None)
            if oldest is None:
                return
            await self._pools.pop(oldest).pool.close()


@dataclass
class _Served:
    """An environment with its pool; `handle` is there once the first process is ready."""

    pool: Pool
    _handle: EnvironmentHandle | None = None

    @property
    def handle(self) -> EnvironmentHandle:
        assert self._handle is not None, "prepare comes first"
        return self._handle

    async def prepare(self, manifest: RunManifest, fingerprint: str) -> None:
        if self._handle is not None:
            return
        async with self.pool.lent() as process:
            facts = process.facts
        try:
            # in a thread: it imports the author's modules
            classes = await asyncio.to_thread(lambda: list(tool_classes(facts["tool_modules"])))
        except Exception as error:
            raise EnvironmentFailed(f"the tools of {manifest.environment}: {error}") from error
        self._handle = PooledEnvironment(self.pool, facts, fingerprint, classes)


class EnvironmentsHere(Environments):
    """Makes instances in this process: an author can stop in them with a debugger."""

    def __init__(self) -> None:
        self._run = SharedProcess()
        self._made: dict[str, asyncio.Task[EnvironmentHandle]] = {}

    async def get(self, manifest: RunManifest) -> EnvironmentHandle:
        key = f"{manifest.environment} {sorted(manifest.environment_config.items())}"
        if (task := self._made.get(key)) is None:
            task = self._made[key] = asyncio.create_task(self._fresh(manifest))
            task.add_done_callback(lambda done: self._forget_failed(key, done))
        # a caller that is cancelled must not end the setup that others wait for
        return await asyncio.shield(task)

    @asynccontextmanager
    async def enumeration(self, manifest: RunManifest) -> AsyncIterator[EnvironmentHandle]:
        yield await self._fresh(manifest)

    async def _fresh(self, manifest: RunManifest) -> EnvironmentHandle:
        environment = await asyncio.to_thread(
            make_environment, manifest.environment, manifest.environment_config
        )
        await self._run(environment.setup)
        return InProcessEnvironment(environment, self._run)

    def _forget_failed(self, key: str, task: "asyncio.Task[EnvironmentHandle]") -> None:
        if task.cancelled() or task.exception() is not None:
            del self._made[key]
