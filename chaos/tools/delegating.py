"""What models say in runs that delegate: the parent has each mark left by a child, and leaves one beside it."""

import re
from dataclasses import dataclass

from chaos.tools import tasks
from chaos.tools.scripts import ToolScript
from clotho.plugins.demo.execution_markers import MARKS
from clotho.testing.script import Policy, Question, ScriptedCall, ScriptedTurn

TASK = re.compile(r"Leave the mark (\S+), and take (\d+) s for it")
RAN = re.compile(r"ran:[ \w-]*")


@dataclass(frozen=True)
class DelegationScript(ToolScript):
    """The children's part as well."""

    def policy(self, seconds: int) -> Policy:
        parents = super().policy(seconds)

        def turn(question: Question) -> ScriptedTurn:
            task = TASK.match(question.prompt)
            return parents(question) if task is None else childs_turn(question, task[1], task[2])

        return turn


def childs_turn(question: Question, mark: str, seconds: str) -> ScriptedTurn:
    """It begins, leaves its mark, and says how often it did each."""
    begun = f"/work/begun-{mark}"
    if question.turn == 0:
        return ScriptedTurn(calls=(terminal(f"echo {tasks.BEGUN} >> {begun}"),))
    if question.turn == 1:
        leave = f"echo {mark} >> {MARKS}; sleep {seconds}"
        return ScriptedTurn(calls=(terminal(f"{leave}; echo ran: $(cat {begun}) $(grep {mark} {MARKS})"),))
    shown = str(question.messages[-1].content)
    found = RAN.search(shown)
    return ScriptedTurn(content=found[0] if found else shown)


def terminal(command: str) -> ScriptedCall:
    return ScriptedCall(name="terminal", arguments={"command": command})


def look(*marks: str) -> ScriptedCall:
    """Leave these marks, and show which there are."""
    leave = "".join(f"echo {mark} >> {MARKS}; " for mark in marks)
    return terminal(f"{leave}touch {MARKS}; echo Done: $(cat {MARKS})")


def delegate(mark: str, seconds: int, _: str) -> ScriptedCall:
    goal = f"Leave the mark {mark}, and take {seconds} s for it."
    return ScriptedCall(name="delegate_task", arguments={"goal": goal})


DELEGATION_SCRIPT = DelegationScript(
    "chaos.tools.tasks:DelegationTasks",
    look(),
    delegate,
    # A sandbox of the child's own has its mark, and the parent's, which is judged, none of it.
    lambda mark: (look(mark, tasks.BESIDE[mark]),),
)
SHARED_SCRIPT = DelegationScript(
    "chaos.tools.tasks:SharedTasks", look(), delegate, lambda mark: (look(tasks.BESIDE[mark]),)
)
