"""An environment whose tool and verifier take half a second: the reward is how often the tool was used."""

import time

from clotho.environment import AgentResult, Item, Reward, ToolContext, tool
from tests.environments.one_file import OneFile, OneFileConfig

NAME = "tests.environments.half_seconds:HalfSeconds"
HALF = 0.5


@tool
def note(ctx: ToolContext) -> str:
    """Write a line."""
    time.sleep(HALF)
    ctx.terminal("echo noted >> /work/notes")
    return "noted"


class HalfSecondsConfig(OneFileConfig):
    enabled_toolsets: tuple[str, ...] | None = ("environment",)
    max_agent_turns: int = 30


class HalfSeconds(OneFile):
    config_class = HalfSecondsConfig

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        time.sleep(HALF)
        return Reward(score=float((ctx.read_bytes("/work/notes") or b"").count(b"\n")))
