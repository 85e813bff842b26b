"""The tools and what each passed of the conformance suite, as a table."""

from collections import Counter

from tests.conformance_table import Results, passed_of
from tests.tools.calls import REGISTRY
from tests.tools.rows import ROWS

EFFECTS = {
    "none": "none",
    "once": "never repeated",
    "told": "never repeated: the model is told",
    "idempotent": "repeated, which changes nothing",
}
LOST = {
    "looks again": "nothing to repeat",
    "repeated": "repeated in the next sandbox",
    "diverged": "not repeated: the rollout is `diverged`",
}


def table(results: Results) -> str:
    lines = [
        "| tool | toolset | effect of an interrupted call | when the sandbox is lost | tests passed |",
        "|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        tool = REGISTRY.get(name)
        assert tool is not None, name
        lost = LOST[row.lost] if tool.sandboxed else "needs none"
        found = sum((counted for (_, kind), counted in results.items() if kind == name), Counter[str]())
        assert row.effect == "none" or not tool.read_only, name
        effect = f"{EFFECTS[row.effect]}; may run side by side" if tool.read_only else EFFECTS[row.effect]
        shown = row.stands_for or f"`{name}`"
        toolset = "`mcp-NAME`" if row.stands_for else f"`{tool.toolset}`"
        cells = (shown, toolset, effect, lost, passed_of(found))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
