"""Tasks for harnesses: commands that leave a mark each, and a result that all of them make up."""

from collections.abc import Mapping
from pathlib import Path

from chaos.phases import STEP
from clotho.environment import AgentResult, Environment, Item, Reward, ToolContext
from clotho.identifiers.ids import call_id
from clotho.plugins.demo.execution_markers import MARKS, with_marks

AGENT = "/work/agent.py"
RESULT = "/work/result"
STREAMS = "/work/.streams"
"""Has a line for each stream that has begun."""
TURNS = 4
"""Turns with a command; one more ends the task."""
EXPECTED = [call_id(turn, 0) for turn in range(TURNS)]
"""The marks, in their order."""


def commands(seconds: int = 0) -> list[str]:
    """The command of each turn; that of the step that is struck takes so many seconds."""
    leave = [f"echo {mark} >> {MARKS}" for mark in EXPECTED]
    leave[STEP] += f"; sleep {seconds}"
    return [
        *(f"{each}; wc -l < {MARKS}" for each in leave[:-1]),
        f"{leave[-1]}; paste -sd+ {MARKS} > {RESULT}",
    ]


class HarnessTasks(Environment):
    """An environment that gives the same item for ever; its reward is 1 where each command ran once, in order."""

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "Leave the marks, each once, and put them together."

    def workspace_files(self, item: Item) -> Mapping[str, str]:
        return {AGENT: Path(__file__).with_name("agent.py").read_text()}

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        found = (await ctx.aio.read_bytes(RESULT) or b"").decode()
        return await with_marks(Reward(score=float(found.strip() == "+".join(EXPECTED))), ctx)
