"""The baseline: Atropos' BaseEnv with an agent loop in memory, over the environment that Clotho rolls out too.

    python -m benchmarks.in_memory serve --env.sandboxes FOLDER --openai.base_url URL …

A rollout is a coroutine: chat completions, the terminal tool in a local sandbox, the environment's compute_reward
in the same sandbox. Nothing is written down: a crash loses what is under way.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any

from atroposlib.envs.base import BaseEnv, BaseEnvConfig
from atroposlib.envs.server_handling.server_manager import APIServerConfig
from pydantic import Field

from clotho.config import Settings, variable
from clotho.environment import AgentResult, Item, ToolContext
from clotho.environment.tool_context import AsyncToolContext
from clotho.environment.workspace import Workspace
from clotho.sandbox.backend import SandboxInstance, SandboxSpec
from clotho.sandbox.registry import open_backend
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.resolution import resolve
from clotho.tools.tool import CallContext, ToolSettings
from environments.file_tasks import FileTasks, FileTasksConfig

MASKED = -100

Message = dict[str, Any]


class InMemoryConfig(BaseEnvConfig):  # type: ignore[misc]
    sandboxes: str = Field(default="", description="The folder that holds the sandboxes.")


class InMemory(BaseEnv):  # type: ignore[misc]
    """file_tasks, with collect_trajectory as the in-memory design had it."""

    name = "in-memory"
    env_config_cls = InMemoryConfig

    @classmethod
    def config_init(cls) -> tuple[InMemoryConfig, list[APIServerConfig]]:
        # One that isn't in a list stands for a cluster's ports to Atropos, whatever its URL.
        return cls.env_config_cls(), [APIServerConfig()]

    async def setup(self) -> None:
        self.environment = FileTasks(FileTasksConfig())
        await self.environment.setup()
        registry = Registry.discover()
        self.offered = resolve(registry, self.environment.config.enabled_toolsets)
        self.dispatcher = Dispatcher(registry, variable)
        self.backend = open_backend(Settings(), Path(self.config.sandboxes))
        self.numbers = itertools.count()

    async def get_next_item(self) -> Item:
        return await self.environment.get_next_item()

    async def evaluate(self, *_: Any, **__: Any) -> None:
        """Nothing is held out."""

    async def collect_trajectory(self, item: Item) -> tuple[dict[str, Any], list[Any]]:
        lease = lease_name(next(self.numbers))
        sandbox = await self.backend.create(lease, SandboxSpec())
        try:
            for path, content in self.environment.workspace_files(item).items():
                await sandbox.write_file(path, content.encode())
            messages = await self._converse(item, lease, sandbox)
            score = await self._score(item, messages, lease, sandbox)
        finally:
            await self.backend.destroy(lease)
        return self._row(messages, score), []

    async def _converse(self, item: Item, lease: str, sandbox: SandboxInstance) -> list[Message]:
        messages: list[Message] = [{"role": "user", "content": self.environment.format_prompt(item)}]
        state: dict[str, Any] = {}
        for turn in range(self.environment.config.max_agent_turns):
            completion = await self.server.chat_completion(
                messages=messages,
                tools=list(self.offered.schemas),
                temperature=1.0,
                max_tokens=self.environment.config.max_token_length,
            )
            answer = completion.choices[0].message
            messages.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                break
            for number, call in enumerate(answer.tool_calls):
                context = CallContext(
                    rollout=lease,
                    call=(turn, number),
                    tool_call_id=call.id,
                    settings=ToolSettings(),
                    state=state,
                    instance=sandbox,
                )
                made = await self.dispatcher.run(
                    call.function.name,
                    call.function.arguments,
                    [tool.name for tool in self.offered.tools],
                    context,
                )
                state.update(made.state)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": made.content})
        return messages

    async def _score(
        self, item: Item, messages: list[Message], lease: str, sandbox: SandboxInstance
    ) -> float:
        async def opened() -> SandboxInstance:
            return sandbox

        workspace = Workspace(lease, ("verify", 0), opened, self.dispatcher, (), ToolSettings())
        loop = asyncio.get_running_loop()
        turns = sum(message["role"] == "assistant" for message in messages)
        result = AgentResult(
            messages=messages,
            turns_used=turns,
            finished_naturally=messages[-1]["role"] == "assistant",
            reasoning_per_turn=[None] * turns,
            tool_errors=[],
        )
        context = ToolContext(AsyncToolContext(workspace, loop), loop)
        return (await self.environment.compute_reward(item, result, context)).score

    def _row(self, messages: list[Message], score: float) -> dict[str, Any]:
        """The conversation tokenized anew, with its last message to be trained on."""
        tokens = self._tokens(messages)
        before = min(len(self._tokens(messages[:-1], add_generation_prompt=True)), len(tokens))
        return {"tokens": tokens, "masks": [MASKED] * before + tokens[before:], "scores": score}

    def _tokens(self, messages: list[Message], **options: bool) -> list[int]:
        tokens: list[int] = self.tokenizer.apply_chat_template(
            messages, tools=list(self.offered.schemas), return_dict=False, **options
        )
        return tokens


def lease_name(number: int) -> str:
    """The lease's name for the sandbox of a process' rollout `number`."""
    return f"in-memory-{number}"


if __name__ == "__main__":
    InMemory.cli()
