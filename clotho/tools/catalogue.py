"""The toolsets that environments and datasets name, whether or not this installation has their tools."""

LEAVES: dict[str, tuple[str, ...]] = {
    "browser": (
        "browser_back",
        "browser_cdp",
        "browser_click",
        "browser_console",
        "browser_dialog",
        "browser_get_images",
        "browser_navigate",
        "browser_press",
        "browser_scroll",
        "browser_snapshot",
        "browser_type",
        "browser_vision",
        "web_search",
    ),
    "clarify": ("clarify",),
    "code_execution": ("execute_code",),
    "delegation": ("delegate_task",),
    "file": ("patch", "read_file", "search_files", "write_file"),
    "image_gen": ("image_generate",),
    "memory": ("memory",),
    "moa": ("mixture_of_agents",),
    "search": ("web_search",),
    "session_search": ("session_search",),
    "skills": ("skill_manage", "skill_view", "skills_list"),
    "terminal": ("process", "terminal"),
    "todo": ("todo",),
    "vision": ("vision_analyze",),
    "web": ("web_extract", "web_search"),
}

COMPOSITES: dict[str, tuple[str, ...]] = {
    "debugging": ("file", "terminal", "web"),
    "safe": ("image_gen", "vision", "web"),
}

OUTSIDE_ROLLOUTS = frozenset({"memory", "session_search"})
"""Tools that carry knowledge from one session to the next, which a rollout must not have."""


REFUSED = {"browser_cdp": "refused: raw commands would reach past the run's network policy"}
"""Tools that can't be made safe."""


def reason_missing(tool: str) -> str:
    """Why a catalogued tool that no module provides can't be offered."""
    if tool in REFUSED:
        return REFUSED[tool]
    return "not available in RL environments" if tool in OUTSIDE_ROLLOUTS else "not built in this version"
