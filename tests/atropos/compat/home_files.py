"""Files in the agent's home, which the reward looks at by `cat`; evaluated by one answer each, without tools."""

from typing import Any

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from atropos_adapter import AgentResult, HermesAgentBaseEnv, HermesAgentEnvConfig, ToolContext

TASKS = (
    {"path": "~/colour.txt", "holds": "green"},
    {"path": "~/counted.txt", "holds": "one\ntwo"},
)


class HomeFiles(HermesAgentBaseEnv):
    name = "home-files"
    env_config_cls = HermesAgentEnvConfig

    @classmethod
    def config_init(cls) -> tuple[HermesAgentEnvConfig, list[APIServerConfig]]:
        config = HermesAgentEnvConfig(
            enabled_toolsets=["terminal", "file"],
            max_agent_turns=5,
            terminal_backend="modal",
            group_size=3,
            ensure_scores_are_not_same=False,
            total_steps=2,
        )
        return config, [APIServerConfig(base_url="https://models.example/v1", model_name="far")]

    async def setup(self) -> None:
        self.drawn = 0
        self.rewards: list[float] = []

    async def get_next_item(self) -> dict[str, str]:
        self.drawn += 1
        return TASKS[(self.drawn - 1) % len(TASKS)]

    def format_prompt(self, item: dict[str, str]) -> str:
        return f"Write a file {item['path']} that holds: {item['holds']}"

    async def compute_reward(self, item: dict[str, str], result: AgentResult, ctx: ToolContext) -> float:
        found = ctx.terminal(f"cat {item['path']}")
        reward = 0.0
        if found["exit_code"] == 0:
            text = found.get("output", "").strip()
            reward = 1.0 if text == item["holds"] else 0.5 if item["holds"] in text else 0.0
        self.rewards.append(reward)
        return reward

    async def evaluate(self, *_: Any, **__: Any) -> None:
        answers = []
        for item in TASKS:
            completion = await self.server.chat_completion(
                messages=[{"role": "user", "content": self.format_prompt(item)}],
                n=1,
                max_tokens=50,
                temperature=0.0,
                split="eval",
            )
            answers.append(completion.choices[0].message.content)
        await self.evaluate_log({"eval/answers": len([answer for answer in answers if answer])})
