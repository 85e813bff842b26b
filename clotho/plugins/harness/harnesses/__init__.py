"""The harnesses that are known by name."""

from collections.abc import Mapping

from clotho.errors import InvalidInput
from clotho.plugins.harness.harnesses.claude_code import ClaudeCode
from clotho.plugins.harness.harnesses.codex import Codex
from clotho.plugins.harness.harnesses.command import Command
from clotho.plugins.harness.harnesses.harness import Harness
from clotho.plugins.harness.harnesses.mini_swe_agent import MiniSweAgent
from clotho.plugins.harness.harnesses.opencode import OpenCode
from clotho.plugins.harness.settings import HarnessSettings

KNOWN: Mapping[str, type[Harness]] = {
    kind.name: kind for kind in (MiniSweAgent, Codex, ClaudeCode, OpenCode, Command)
}


def harness_of(name: str, settings: HarnessSettings) -> Harness:
    """The harness of that name. Raises InvalidInput for one that isn't known, or that lacks a setting."""
    if name not in KNOWN:
        raise InvalidInput(f"no harness {name!r}: those known are {', '.join(KNOWN)}")
    harness = KNOWN[name](settings)
    _ = harness.program  # raises where there is none
    return harness
