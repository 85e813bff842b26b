"""An environment as the in-memory design had them: its only change is where it imports from.

python -m examples.scored_files serve --openai.base_url http://host:8000/v1 --openai.model_name NAME
"""

import random
import uuid
from typing import Any

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from atropos_adapter import (
    AgentResult,
    HermesAgentBaseEnv,
    HermesAgentEnvConfig,
    HermesAgentLoop,
    ToolContext,
)

WORDS = ("river", "stone", "winter", "lamp", "noon")


class ScoredFilesConfig(HermesAgentEnvConfig):
    words: int = 2


class ScoredFiles(HermesAgentBaseEnv):
    """Write words to a file. Rewards are kept until they are logged, and the dataset is shuffled anew each time."""

    name = "scored-files"
    env_config_cls = ScoredFilesConfig

    @classmethod
    def config_init(cls) -> tuple[ScoredFilesConfig, list[APIServerConfig]]:
        config = ScoredFilesConfig(enabled_toolsets=["terminal"], max_agent_turns=4, max_token_length=160)
        return config, [APIServerConfig(base_url="http://localhost:8000/v1", model_name="clotho-tiny")]

    async def setup(self) -> None:
        self.rewards: list[float] = []
        self.items = [{"text": " ".join((a, b)[: self.config.words])} for a in WORDS for b in WORDS]
        random.shuffle(self.items)
        self.next = 0

    async def get_next_item(self) -> dict[str, str]:
        self.next += 1
        return self.items[(self.next - 1) % len(self.items)]

    def format_prompt(self, item: dict[str, str]) -> str:
        return f"Create a file at /tmp/log.txt containing exactly the text: {item['text']}"

    async def compute_reward(self, item: dict[str, str], result: AgentResult, ctx: ToolContext) -> float:
        found = ctx.terminal("cat /tmp/log.txt")
        reward = 1.0 if found["output"].strip() == item["text"] else 0.1 * min(result.turns_used, 5)
        self.rewards.append(reward)
        return reward

    async def evaluate(self, *_: Any, **__: Any) -> None:
        rewards = [await self.evaluate_one(item) for item in self.items[: self.config.evaluation_groups]]
        await self.evaluate_log({"eval/mean_reward": sum(rewards) / len(rewards)})

    async def evaluate_one(self, item: dict[str, str]) -> float:
        tools, valid_names = self._resolve_tools_for_group()
        task_id = str(uuid.uuid4())
        agent = HermesAgentLoop(
            server=self.server,
            tool_schemas=tools,
            valid_tool_names=valid_names,
            max_turns=self.config.max_agent_turns,
            task_id=task_id,
            temperature=0.0,
            max_tokens=self.config.max_token_length,
        )
        result = await agent.run([{"role": "user", "content": self.format_prompt(item)}])
        ctx = ToolContext(task_id)
        try:
            return await self.compute_reward(item, result, ctx)
        finally:
            ctx.cleanup()

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        metrics = wandb_metrics or {}
        if self.rewards:
            metrics["train/reward_kept"] = sum(self.rewards) / len(self.rewards)
        self.rewards = []
        await super().wandb_log(metrics)


if __name__ == "__main__":
    ScoredFiles.cli()
