"""Tool calls of a rollout in a real sandbox, without a workflow around them."""

import json
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from clotho.config import variable
from clotho.identifiers.ids import call_id
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.tool import CallContext, Dispatched, ToolSettings

REGISTRY = Registry.discover()


class Calls:
    """Runs one call after another, each with the state that the earlier ones left."""

    def __init__(self, sandbox: SandboxInstance, settings: ToolSettings | None = None) -> None:
        self.sandbox = sandbox
        self.settings = settings or ToolSettings()
        self.state: dict[str, JsonValue] = {}
        self.number = 0
        self.offsets: list[int] = []
        self.last: CallContext
        self.dispatched: Dispatched

    async def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The JSON result of the next call."""
        self.number += 1
        self.last = CallContext(
            rollout="run/g000000/r0",
            call=("call", call_id(self.number, 0)),
            tool_call_id=f"call_{self.number}",
            settings=self.settings,
            state=dict(self.state),
            instance=self.sandbox,
            progress=self.offsets.append,
        )
        return await self._run(tool, arguments)

    async def again(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a second attempt at the last call, as after a crash before it was journalled."""
        self.last = replace(self.last, instance=self.sandbox)
        return await self._run(tool, arguments)

    async def _run(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.dispatched = await Dispatcher(REGISTRY, variable).run(
            tool, json.dumps(arguments), REGISTRY.names, self.last, turn_chars=0
        )
        self.state |= self.dispatched.state
        result: dict[str, Any] = (
            json.loads(self.dispatched.content) if self.dispatched.content.startswith("{") else {}
        )
        return result

    async def shell(self, command: str) -> str:
        """The output of a command, in the directory and with the variables of the last one."""
        output: str = (await self("terminal", command=command))["output"]
        return output
