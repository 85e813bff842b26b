"""The result budget as environments of the in-memory design name it."""

import math

from clotho.frozen_model import FrozenModel
from clotho.tools.tool import ToolSettings

NEVER_SPILLED = "read_file"
"""Never cut: its result would be read from the file that it was spilled to."""


class BudgetConfig(FrozenModel):
    """Characters that tool results may take up before they go to files in the sandbox."""

    default_result_size: int = ToolSettings().max_result_chars
    """Characters of one result."""
    turn_budget: int = ToolSettings().max_turn_chars
    """Characters of all results of one turn."""
    preview_size: int = ToolSettings().preview_chars
    """Characters shown of a result that went to a file."""
    tool_overrides: dict[str, int] = {}
    """Tool -> characters of one of its results."""

    def resolve_threshold(self, tool_name: str) -> float:
        """Characters of one result of the tool; infinity for read_file."""
        if tool_name == NEVER_SPILLED:
            return math.inf
        return self.tool_overrides.get(tool_name, self.default_result_size)

    def applied_to(self, settings: ToolSettings) -> ToolSettings:
        """`settings` with this budget."""
        overrides = {tool: chars for tool, chars in self.tool_overrides.items() if tool != NEVER_SPILLED}
        update = {
            "max_result_chars": self.default_result_size,
            "max_turn_chars": self.turn_budget,
            "preview_chars": self.preview_size,
            "result_chars": overrides,
        }
        return settings.model_copy(update=update)
