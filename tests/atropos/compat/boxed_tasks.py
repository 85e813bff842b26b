"""An evaluation only: a box for each task, tests brought into it after the agent, the verdict fetched from it."""

import asyncio
import tempfile
import uuid
from pathlib import Path
from typing import Any

from atroposlib.envs.base import EvalHandlingEnum
from atroposlib.envs.server_handling.server_manager import APIServerConfig

from atropos_adapter import (
    AgentResult,
    HermesAgentBaseEnv,
    HermesAgentEnvConfig,
    HermesAgentLoop,
    ToolContext,
    cleanup_vm,
    clear_task_env_overrides,
    register_task_env_overrides,
)

TASKS = ("plain", "wrong", "endless")
TEST = """mkdir -p /logs/verifier
if python /tests/check.py; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


class BoxedConfig(HermesAgentEnvConfig):
    endless_timeout: float = 2.0


class BoxedTasks(HermesAgentBaseEnv):
    name = "boxed-tasks"
    env_config_cls = BoxedConfig

    @classmethod
    def config_init(cls) -> tuple[BoxedConfig, list[APIServerConfig]]:
        config = BoxedConfig(
            enabled_toolsets=["terminal", "file"],
            max_agent_turns=6,
            terminal_backend="modal",
            terminal_timeout=300,
            eval_handling=EvalHandlingEnum.STOP_TRAIN,
            group_size=1,
        )
        return config, [APIServerConfig(base_url="https://models.example/v1", model_name="far")]

    async def collect_trajectories(self, item: Any) -> Any:
        return None, []

    def format_prompt(self, item: dict[str, Any]) -> str:
        return f"Task {item['task']}: write its name to /app/name"

    async def compute_reward(self, item: Any, result: Any, ctx: Any) -> float:
        return 0.0

    async def evaluate(self, *_: Any, **__: Any) -> None:
        passed = dict(await asyncio.gather(*(self._bounded(task) for task in TASKS)))
        await self.evaluate_log({f"eval/{task}": float(verdict) for task, verdict in passed.items()})

    async def _bounded(self, task: str) -> tuple[str, bool]:
        seconds = self.config.endless_timeout if task == "endless" else None
        try:
            return task, await asyncio.wait_for(self._one(task), seconds)
        except TimeoutError:
            return task, False

    async def _one(self, task: str) -> bool:
        box = str(uuid.uuid4())
        register_task_env_overrides(box, {"modal_image": f"boxes/{task}:1", "cwd": "/app"})
        try:
            result = await self._driven(box, task)
            context = ToolContext(box)
            try:
                loop = asyncio.get_event_loop()
                return result.turns_used > 0 and await loop.run_in_executor(None, self._tested, task, context)
            finally:
                context.cleanup()
        finally:
            clear_task_env_overrides(box)
            cleanup_vm(box)

    async def _driven(self, box: str, task: str) -> AgentResult:
        tools, names = self._resolve_tools_for_group()
        messages = [{"role": "user", "content": self.format_prompt({"task": task})}]
        asked: dict[str, Any] = {
            "tool_schemas": tools,
            "valid_tool_names": names,
            "max_tokens": self.config.max_token_length,
            "max_turns": self.config.max_agent_turns,
            "task_id": box,
            "budget_config": self.config.build_budget_config(),
        }
        if not self._use_managed_server():
            return await HermesAgentLoop(server=self.server, **asked).run(messages)
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            return await HermesAgentLoop(server=managed, **asked).run(messages)

    def _tested(self, task: str, context: ToolContext) -> bool:
        context.terminal("mkdir -p /tests /logs/verifier")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "check.py").write_text(f"assert open('/app/name').read().strip() == {task!r}\n")
            context.upload_dir(str(folder), "/tests")
        context.write_file("/tests/test.sh", TEST)
        context.terminal("bash /tests/test.sh", timeout=60)
        with tempfile.TemporaryDirectory() as name:
            context.download_dir("/logs/verifier", name)
            return (Path(name) / "reward.txt").read_text().strip() == "1"
