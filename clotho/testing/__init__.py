"""Test support: a task in a real sandbox, and a model that says what a script says.

An author's tests import from here; docs/testing.md has examples. The other modules of this package serve the
demo and Clotho's own tests.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clotho.testing.script import (
        Conversation,
        Fault,
        Script,
        ScriptedCall,
        ScriptedTurn,
        terminal_turns,
    )
    from clotho.testing.scripted_model import ScriptedModel, serving
    from clotho.testing.task import SandboxedTask, sandboxed_context

__all__ = [
    "Conversation",
    "Fault",
    "SandboxedTask",
    "Script",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedTurn",
    "sandboxed_context",
    "serving",
    "terminal_turns",
]

_PLACES = {
    "clotho.testing.script": (
        *("Conversation", "Fault", "Script", "ScriptedCall", "ScriptedTurn"),
        "terminal_turns",
    ),
    "clotho.testing.scripted_model": ("ScriptedModel", "serving"),
    "clotho.testing.task": ("SandboxedTask", "sandboxed_context"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: `python -m` runs modules of this package by themselves."""
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
