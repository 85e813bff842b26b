"""Verifiers that look at the answer, take it away, and wait for the test before they go on."""

import uuid

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext

ANSWER = "/work/answer"
WAITS = "while [ ! -e /work/go ]; do sleep 0.05; done"


class TidyingConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class Removes(Environment):
    config_class = TidyingConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        found = ctx.read_bytes(ANSWER)
        ctx.terminal(f"rm {ANSWER}; touch /work/removed; {WAITS}", timeout=600)
        return float(found == b"right\n")


class NamesAtRandom(Removes):
    """Each attempt differs from the one before from its first command on."""

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        name = uuid.uuid4().hex
        ctx.terminal(f"mv {ANSWER} {name}; touch /work/removed; sleep 3", timeout=600)
        return float(ctx.read_bytes(f"/work/{name}") == b"right\n")


class KeepsServicesConfig(TidyingConfig):
    keep_services: bool = True


class KeepsServices(NamesAtRandom):
    config_class = KeepsServicesConfig
