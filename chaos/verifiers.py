"""Verifiers that look and tidy up, each in a way of its own: a right answer scores 1 whatever happens to them."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from itertools import cycle

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext

ANSWER = "/work/answer"
RIGHT = b"right\n"


class VerifierConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)
    seconds: float = 5.0
    """The time that a verifier's command takes, longer than what is tried in the workflow's process."""
    longest_seconds: float = 30.0
    """The time of the slow verifier's command."""


class TidyingVerifiers(Environment):
    """Items of every kind in turn; the agent writes the answer, and its verifier takes it away."""

    config_class = VerifierConfig
    config: VerifierConfig

    async def setup(self) -> None:
        self.kinds = cycle(KINDS)

    async def get_next_item(self) -> Item:
        return {"kind": next(self.kinds)}

    def format_prompt(self, item: Item) -> str:
        return "task"

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float(await KINDS[str(item["kind"])](ctx, self.config))


async def removes(ctx: ToolContext, config: VerifierConfig) -> bool:
    found = await ctx.aio.read_bytes(ANSWER)
    await ctx.aio.terminal(f"rm {ANSWER}; sleep {config.seconds}")
    return found == RIGHT


async def overwrites(ctx: ToolContext, config: VerifierConfig) -> bool:
    """It writes what it read elsewhere, and runs a suite that overwrites its input."""
    await ctx.aio.write_bytes("/work/copy", await ctx.aio.read_bytes(ANSWER) or b"")
    await ctx.aio.terminal(f"echo wrong > {ANSWER}; sleep {config.seconds}")
    compared = await ctx.aio.terminal("cmp copy answer && mv copy answer")
    return compared["exit_code"] == 1 and await ctx.aio.read_bytes("/work/copy") == RIGHT


async def names_at_random(ctx: ToolContext, config: VerifierConfig) -> bool:
    """Each attempt differs from the one before from its first command on."""
    name = uuid.uuid4().hex
    await ctx.aio.terminal(f"mv {ANSWER} {name}; sleep {config.seconds}")
    await ctx.aio.write_bytes(f"/work/{name}.checked", str(time.time()).encode())
    listed = await ctx.aio.terminal("ls | wc -l")
    return listed["output"].strip() == "2" and await ctx.aio.read_bytes(f"/work/{name}") == RIGHT


async def is_slow(ctx: ToolContext, config: VerifierConfig) -> bool:
    found = await ctx.aio.read_bytes(ANSWER)
    await ctx.aio.terminal(f"rm {ANSWER}; sleep {config.longest_seconds}")
    return found == RIGHT


async def side_by_side(ctx: ToolContext, config: VerifierConfig) -> bool:
    commands = (f"sleep {config.seconds / (1 + each)}; echo {each}" for each in range(3))
    found, outputs = await asyncio.gather(
        ctx.aio.read_bytes(ANSWER), asyncio.gather(*(ctx.aio.terminal(command) for command in commands))
    )
    await ctx.aio.terminal(f"rm {ANSWER}")
    left = await ctx.aio.read_bytes(ANSWER)
    return found == RIGHT and left is None and [each["output"].strip() for each in outputs] == ["0", "1", "2"]


async def counts_its_runs(ctx: ToolContext, config: VerifierConfig) -> bool:
    """A command that ran twice in one workspace would find its own mark."""
    ran = await ctx.aio.terminal(f"test ! -e ran && touch ran && sleep {config.seconds}")
    found = await ctx.aio.read_bytes(ANSWER)
    await ctx.aio.terminal("rm answer ran")
    return ran["exit_code"] == 0 and found == RIGHT


KINDS: dict[str, Callable[[ToolContext, VerifierConfig], Awaitable[bool]]] = {
    "removes": removes,
    "overwrites": overwrites,
    "names-at-random": names_at_random,
    "is-slow": is_slow,
    "side-by-side": side_by_side,
    "counts-its-runs": counts_its_runs,
}
