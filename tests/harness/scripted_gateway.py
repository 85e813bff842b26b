"""A model for harnesses that writes a file and is done, behind the dialects and without a rollout."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Self, TypeVar

from aiohttp import web

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall, ToolSchema
from clotho.plugins.harness.dialects import BY_PATH
from clotho.plugins.harness.dialects.canonical import Answer, Asked

T = TypeVar("T")

SHELLS = ("bash", "Bash", "exec_command")
COMMANDS = ("echo hello > a.txt", "cat a.txt; sleep 0.2", "cat a.txt")
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The command by which mini-swe-agent's model ends: its only tool is the shell."""


class ScriptedGateway:
    """Answers as the conversation demands, from its messages alone."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.asked: list[tuple[str, Asked]] = []
        self.answered: list[ChatMessage] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/{path:.*}", self._called)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @staticmethod
    async def beside(run: Callable[..., T], *arguments: Any) -> T:
        """Run what blocks, while requests are answered."""
        return await asyncio.to_thread(run, *arguments)

    async def _called(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        dialect = BY_PATH.get(path)
        if dialect is None:
            return web.Response(status=404)
        assert dialect.key(request.headers) == self._key
        asked = dialect.parse(await request.read())
        message = _message(asked)
        self.asked.append((path, asked))
        self.answered.append(message)
        answer = Answer(
            message=message,
            finish_reason="tool_calls" if message.tool_calls else "stop",
            custom_tools=asked.custom_tools,
            namespaces=asked.namespaces,
        )
        id = f"answer{len(self.asked)}"
        if not asked.stream:
            return web.Response(body=dialect.answer(answer, id, asked.model), content_type="application/json")
        events = b"".join(dialect.events(answer, id, asked.model))
        return web.Response(body=events, content_type="text/event-stream")


def _message(asked: Asked) -> ChatMessage:
    done = sum(message.role == "tool" for message in asked.messages)
    shell = next((tool for name in SHELLS for tool in asked.tools if _name(tool) == name), None)
    assert shell is not None, f"no shell among {[_name(tool) for tool in asked.tools]}"
    commands = (*COMMANDS, SUBMIT) if len(asked.tools) == 1 else COMMANDS
    if done >= len(commands):
        return ChatMessage(role="assistant", content="Done: a.txt says hello.")
    arguments = json.dumps(_arguments(shell, commands[done]))
    call = ToolCall(id=f"call_{done}", function=FunctionCall(name=_name(shell), arguments=arguments))
    said = f"Step {done + 1}." if done else None
    return ChatMessage(role="assistant", content=said, reasoning_content="I think.", tool_calls=(call,))


def _name(tool: ToolSchema) -> str:
    function: Any = tool["function"]
    return str(function["name"])


def _arguments(shell: ToolSchema, command: str) -> dict[str, Any]:
    """The command, and words for what else the tool requires."""
    function: Any = shell["function"]
    properties, required = function["parameters"]["properties"], function["parameters"].get("required", ())
    key = "cmd" if "cmd" in properties else "command"
    return {**dict.fromkeys(required, "step"), key: command}
