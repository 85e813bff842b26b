"""The one-file environment whose agent may delegate tasks: scripted turns of it."""

from typing import Any

from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.tools.delegation import DelegationSettings
from tests.environments.one_file import OneFile, OneFileConfig

NAME = "tests.environments.delegating:Delegating"


class DelegatingConfig(OneFileConfig):
    enabled_toolsets: tuple[str, ...] | None = ("delegation", "file", "terminal")
    delegation: DelegationSettings | None = DelegationSettings(turns=4)


class Delegating(OneFile):
    config_class = DelegatingConfig


def delegates(goal: str, **arguments: Any) -> ScriptedTurn:
    return ScriptedTurn(calls=(ScriptedCall(name="delegate_task", arguments={"goal": goal, **arguments}),))


def script(*parent: ScriptedTurn, latency: float = 0.0, **children: tuple[ScriptedTurn, ...]) -> Script:
    """Turns of the rollout, and of the children by the first word of their goals."""
    others = [Conversation(match=goal, variants=(turns,)) for goal, turns in children.items()]
    return Script(conversations=(*others, Conversation(variants=(parent,))), latency=latency)
