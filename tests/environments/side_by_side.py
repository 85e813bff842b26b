"""The one-file environment with tools that only read, as far as they are declared: they wait for each other."""

from clotho.environment import ToolContext, tool
from clotho.testing.script import ScriptedCall, ScriptedTurn
from tests.environments.one_file import OneFile, OneFileConfig
from tests.workflows.scripts import say

NAME = "tests.environments.side_by_side:SideBySide"
WAIT = "while [ ! -e /work/{} ]; do sleep 0.02; done"
LONG = 600.0


@tool(read_only=True, seconds=LONG)
def meet(own: str, other: str, ctx: ToolContext) -> str:
    """Make a file, and wait for another."""
    waited = ctx.terminal(f"echo {own} >> /work/{own}; {WAIT.format(other)}", LONG)
    return f"{own} met {other}" if waited["exit_code"] == 0 else str(waited)


@tool(read_only=True, seconds=LONG)
def flood(own: str, other: str, ctx: ToolContext) -> str:
    """Make a file, wait for another, and write until the sandbox's disk is full."""
    return str(ctx.terminal(f"echo {own} >> /work/{own}; {WAIT.format(other)}; head -c 1G /dev/zero", LONG))


class SideBySideConfig(OneFileConfig):
    enabled_toolsets: tuple[str, ...] | None = ("environment", "terminal", "file", "web")


class SideBySide(OneFile):
    config_class = SideBySideConfig


def meets(own: str, other: str) -> ScriptedCall:
    return ScriptedCall(name="meet", arguments={"own": own, "other": other})


def floods(own: str, other: str) -> ScriptedCall:
    return ScriptedCall(name="flood", arguments={"own": own, "other": other})


def runs(command: str) -> ScriptedCall:
    return ScriptedCall(name="terminal", arguments={"command": command})


def reads(path: str) -> ScriptedCall:
    return ScriptedCall(name="read_file", arguments={"path": path})


MEETING = (
    ScriptedTurn(
        calls=(
            runs("echo before > /work/log"),
            meets("left", "right"),
            reads("/work/log"),
            meets("right", "left"),
            runs("echo after > /work/log; echo -n 1 > /work/score"),
            reads("/work/log"),
            reads("/work/score"),
        )
    ),
    say("Done."),
)
"""Two calls that end only beside each other, between others that have to stay in their order."""
