"""A verifier's tools over a real sandbox, without a workflow around them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from clotho.config import variable
from clotho.environment.tool_context import AsyncToolContext
from clotho.environment.workspace import Workspace
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import SandboxInstance
from clotho.sandbox.verification import VerifierSetup
from clotho.tools.dispatch import Dispatcher
from clotho.tools.tool import ToolSettings
from tests.sandbox.backends import Backend
from tests.sandbox.tool_calls import REGISTRY

START = job_key("verifier", "start")
NOTHING: Mapping[str, bytes] = MappingProxyType({})


def looking(
    backend: Backend,
    lease: str,
    hidden: Mapping[str, bytes] = NOTHING,
    epoch: int = 0,
    **setup: Any,
) -> AsyncToolContext:
    """The context of the verification of `lease`; `setup` are fields of a VerifierSetup."""
    wanted = VerifierSetup(start=START).model_copy(update=setup)

    async def opened(only_reads: bool = False) -> SandboxInstance:
        asked = wanted.model_copy(update={"only_reads": only_reads})
        return await backend.open_verifier(lease, epoch, hidden, setup=asked)

    return looking_through(opened, epoch, partial(opened, only_reads=True))


Opened = Callable[[], Coroutine[Any, Any, SandboxInstance]]


def looking_through(opened: Opened, epoch: int = 0, to_read: Opened | None = None) -> AsyncToolContext:
    workspace = Workspace(
        rollout="run/g000000/r0",
        place=("verify", epoch),
        open=opened,
        open_to_read=to_read,
        dispatcher=Dispatcher(REGISTRY, variable),
        tools=REGISTRY.names,
        settings=ToolSettings(),
        start=START,
    )
    return AsyncToolContext(workspace, asyncio.get_running_loop())
