"""Code in /workspace that the reward tests by `python3 -c`, with something for a file that is new at all."""

from typing import Any

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from atropos_adapter import AgentResult, HermesAgentBaseEnv, HermesAgentEnvConfig, ToolContext

TASKS = (
    {
        "prompt": "Write /workspace/sums.py with total(values).",
        "test": "import sums; assert sums.total([1, 2]) == 3",
    },
    {"prompt": "Write /workspace/half.py with half(n).", "test": "import half; assert half.half(4) == 2"},
)


class CheckedCode(HermesAgentBaseEnv):
    name = "checked-code"
    env_config_cls = HermesAgentEnvConfig

    @classmethod
    def config_init(cls) -> tuple[HermesAgentEnvConfig, list[APIServerConfig]]:
        config = HermesAgentEnvConfig(
            # Whoever has no keys for the web is offered the rest.
            enabled_toolsets=["terminal", "file", "web"],
            terminal_backend="modal",
            group_size=2,
            ensure_scores_are_not_same=False,
        )
        return config, [APIServerConfig(base_url="http://models.example/v1", model_name="far", api_key="")]

    async def setup(self) -> None:
        self.drawn = 0

    async def get_next_item(self) -> dict[str, str]:
        self.drawn += 1
        return TASKS[(self.drawn - 1) % len(TASKS)]

    def format_prompt(self, item: dict[str, str]) -> str:
        return f"{item[self.config.prompt_field]}\n\nIt must pass:\n{item['test']}"

    async def compute_reward(self, item: dict[str, str], result: AgentResult, ctx: ToolContext) -> float:
        tested = ctx.terminal(f'cd /workspace && python3 -c "{item["test"]}"', timeout=60)
        if tested["exit_code"] == 0:
            return 1.0
        new = ctx.terminal("find /workspace -name '*.py' -newer /tmp/.marker 2>/dev/null | head -5")
        return 0.1 if new["exit_code"] == 0 and new.get("output", "").strip() else 0.0

    async def evaluate(self, *_: Any, **__: Any) -> None:
        await self.evaluate_log({"eval/nothing": 0.0})
