"""An environment that looks for the agent's files under every name they have."""

import json

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


class NamesFilesConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)
    waits: bool = False
    """Whether verification waits for a file before it looks."""


class NamesFiles(Environment):
    config_class = NamesFilesConfig
    config: NamesFilesConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def hidden_files(self, item: Item) -> dict[str, str]:
        return {} if self.config.keep_services else {"expected": "hello\n"}

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        if self.config.waits:
            ctx.terminal("touch /work/verifying; while [ ! -e /work/go ]; do sleep 0.05; done", timeout=600)
        names = ("/home/agent/greeting.txt", "~/greeting.txt", "$HOME/greeting.txt", "greeting.txt")
        found = {
            name: (
                ctx.terminal(f"cat {name}")["output"].strip(),
                (ctx.read_bytes(name) or b"").decode().strip(),
            )
            for name in names
        }
        score = sum(both == ("hello", "hello") for both in found.values()) / len(names)
        return Reward(
            score=score, log=json.dumps({**found, "alive": ctx.terminal("pgrep -c sleep")["output"]})
        )
