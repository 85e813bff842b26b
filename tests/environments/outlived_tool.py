"""The one-file environment with a tool that goes on where it was begun first, and not where it was begun again."""

import os
from pathlib import Path

from clotho.environment import ToolContext, tool
from tests.environments.one_file import OneFile, OneFileConfig

NAME = "tests.environments.outlived_tool:OutlivedTool"
WAITING = "touch /work/waiting; while [ ! -e /work/go ]; do sleep 0.05; done"
LATE = "touch /work/late"


@tool(idempotent=True, seconds=900)
def go_on(begun: str, ctx: ToolContext) -> str:
    """Wait for a file; the first time, run another command."""
    process = Path(begun)
    first = not process.exists()
    if first:
        process.write_text(str(os.getpid()))
    ctx.terminal(WAITING, 900)
    if not first:
        return "done again"
    try:
        ctx.terminal(LATE)
    except BaseException as error:
        process.with_name("refused").write_text(type(error).__name__)
        raise
    process.with_name("made").touch()
    return "done"


class OutlivedToolConfig(OneFileConfig):
    enabled_toolsets: tuple[str, ...] | None = ("environment", "terminal")


class OutlivedTool(OneFile):
    config_class = OutlivedToolConfig
