"""What the model says in runs of tools: it leaves the first mark missing, and looks where a result shows none."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.servers import Upstream
from chaos.tools import tasks
from clotho.rollouts.agent import Agent
from clotho.run_settings import RunSettings
from clotho.testing.script import Conversation, Policy, Question, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import MODEL_NAME, ScriptedModel, serving

DONE = re.compile(r"Done:((?: \d{4}-\d\d)*)")
CODE = """\
from clotho_tools import terminal
import time
{marking}
print(terminal("touch /work/.ran; echo Done: $(cat /work/.ran)")["output"])
"""
MARKING = """\
terminal("echo {mark} >> /work/.ran")
time.sleep({seconds})
"""


@dataclass(frozen=True)
class InThisProcess:
    """A model server that no fault strikes."""

    url: str
    model: str = MODEL_NAME


@dataclass(frozen=True)
class ToolScript:
    """Tasks with one tool: `mark` is called with a mark, its seconds and what was shown last.

    `beside` gives further calls of the same turn.
    """

    environment: str
    look: ScriptedCall
    mark: Callable[[str, int, str], ScriptedCall]
    beside: Callable[[str], tuple[ScriptedCall, ...]] = lambda mark: ()

    def model(self, seconds: int) -> ScriptedModel:
        conversation = Conversation(variants=((ScriptedTurn(),),))
        return ScriptedModel(Script(conversations=(conversation,)), self.policy(seconds))

    @property
    def agent(self) -> Agent:
        return Agent()

    @property
    def settings(self) -> RunSettings:
        return RunSettings()

    @asynccontextmanager
    async def served(self, folder: Path, seconds: int) -> AsyncIterator[Upstream]:
        async with serving(self.model(seconds)) as url:
            yield InThisProcess(url.removesuffix("/v1"))

    def policy(self, seconds: int) -> Policy:
        """That of a model whose call for the first mark takes so many seconds."""

        def turn(question: Question) -> ScriptedTurn:
            shown = str(question.messages[-1].content)
            if (found := DONE.search(shown)) is None:
                return ScriptedTurn(calls=(self.look,))
            left = [mark for mark in tasks.MARKS if mark not in found[1].split()]
            if not left:
                return ScriptedTurn(content="Done.")
            pause = seconds if left[0] == tasks.MARKS[0] else 0
            return ScriptedTurn(calls=(self.mark(left[0], pause, shown), *self.beside(left[0])))

        return turn


def code(marking: str) -> ScriptedCall:
    return ScriptedCall(name="execute_code", arguments={"code": CODE.format(marking=marking)})


def click(mark: str, seconds: int, shown: str) -> ScriptedCall:
    """A click on the mark's button, by the ref that the page as it was shown last has for it."""
    found = re.search(rf'button \\"{mark} in {seconds} s\\"[^\n]*?\[ref=(\w+)\]', shown)
    return ScriptedCall(name="browser_click", arguments={"ref": found[1] if found else "none"})


CODE_SCRIPT = ToolScript(
    "chaos.tools.tasks:CodeTasks",
    code(""),
    lambda mark, seconds, _: code(MARKING.format(mark=mark, seconds=seconds)),
)
MCP_SCRIPT = ToolScript(
    "chaos.tools.tasks:McpTasks",
    ScriptedCall(name="mcp_marks_look", arguments={}),
    lambda mark, seconds, _: ScriptedCall(
        name="mcp_marks_mark", arguments={"call": mark, "seconds": seconds}
    ),
)
BROWSER_SCRIPT = ToolScript(
    "chaos.tools.tasks:BrowserTasks",
    ScriptedCall(name="browser_navigate", arguments={"url": f"http://{tasks.HOST}/"}),
    click,
)
