"""Commands that leave a mark in the workspace each time they run, so that runs can be counted."""

import re
from collections import Counter

from clotho.environment import Reward, ToolContext

MARKS = "/work/.ran"
RAN = "ran: "
MARK = re.compile(r"echo \d{4}-\d{2} >> /work/\.ran(; touch [\w/.-]+)?(; sleep \d+)?\\n")
COMMAND = re.compile(r'"command"\s*:\s*"')


async def with_marks(reward: Reward, ctx: ToolContext) -> Reward:
    """The reward with the marks found in the workspace at the end of its log."""
    marks = (await ctx.aio.read_bytes(MARKS) or b"").decode()
    return reward.model_copy(update={"log": f"{reward.log}\n{RAN}{' '.join(marks.split())}"})


def marked(arguments: str, call: str, seconds: int = 0, touched: str = "") -> str:
    """A terminal call's arguments (JSON) with a command that says `call` first, and then takes its time.

    `touched` is a file that it touches in between.
    """
    touch, pause = f"; touch {touched}" if touched else "", f"; sleep {seconds}" if seconds else ""
    first = f"echo {call} >> {MARKS}{touch}{pause}\\n"
    return COMMAND.sub(lambda found: found[0] + first, arguments, count=1)


def unmarked(arguments: str) -> str:
    return MARK.sub("", arguments)


def marks_in(log: str) -> Counter[str]:
    """Call -> how often it ran in the workspace that was judged."""
    return Counter(log.rpartition(RAN)[2].split())
