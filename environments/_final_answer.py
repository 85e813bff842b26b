"""The answer in a rollout's last message."""

import re

from clotho.environment import AgentResult

ASKED = "End your last message with a line `Answer: …` that has the answer and nothing else."
LINE = re.compile(r"^[\s*_#>-]*answer[\s*_]*:[\s*_]*(.*)$", re.IGNORECASE | re.MULTILINE)
AROUND = " \t\r*_`$"
MOST_CHARS = 500


def final_answer(result: AgentResult) -> str:
    """What follows the last `Answer:` of the last message, without marks around it; empty where there is none."""
    last = result.messages[-1] if result.messages else {}
    if last.get("role") != "assistant":
        return ""
    found = LINE.findall(str(last.get("content") or ""))
    return found[-1].strip(AROUND).rstrip(".").strip(AROUND)[:MOST_CHARS] if found else ""
