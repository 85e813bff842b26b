"""Turns of scripted models."""

from clotho.testing.script import Conversation, ScriptedCall, ScriptedTurn


def run(command: str) -> ScriptedTurn:
    return ScriptedTurn(calls=(ScriptedCall(name="terminal", arguments={"command": command}),))


def say(text: str) -> ScriptedTurn:
    return ScriptedTurn(content=text)


def scoring(*scores: float) -> Conversation:
    """Sibling n earns score n: it writes what the environment tests.environments.one_file reads."""
    return Conversation(
        variants=tuple((run(f"echo -n {score} > /work/score"), say("Done.")) for score in scores)
    )
