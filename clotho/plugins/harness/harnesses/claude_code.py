"""Claude Code: the Messages API, streamed, and unstreamed where a stream fails it."""

import re
from typing import ClassVar

from clotho.plugins.harness.digest import Volatile
from clotho.plugins.harness.harnesses.harness import Harness, Launch, Start

MOST_MILLISECONDS = 2**31 - 1
"""The longest that a timer of its runtime takes."""


class ClaudeCode(Harness):
    name: ClassVar = "claude-code"
    program: ClassVar = "claude"
    dialect: ClassVar = "messages"
    install: ClassVar = (
        "`npm install --ignore-scripts --prefix FOLDER/claude @anthropic-ai/claude-code-linux-x64`, and a link "
        "FOLDER/bin/claude to its program"
    )
    volatile: ClassVar = (
        Volatile("user", re.compile(r"(?<=# currentDate\nToday's date is )\d{4}-\d\d-\d\d(?=\.\n)")),
        Volatile("system", re.compile(r"(?<=\n - OS Version: )Linux [^\n]+")),
        Volatile("tools", re.compile(r"(?<=The current month is )[A-Z][a-z]+ \d{4}")),
    )
    aside_without_tools: ClassVar = True

    def start(self, start: Start) -> Launch:
        every = ("OPUS", "SONNET", "HAIKU")
        variables = {
            "ANTHROPIC_BASE_URL": start.url,
            "ANTHROPIC_API_KEY": start.key,
            "ANTHROPIC_MODEL": start.model,
            **{f"ANTHROPIC_DEFAULT_{kind}_MODEL": start.model for kind in every},
            "CLAUDE_CODE_SUBAGENT_MODEL": start.model,
            "API_TIMEOUT_MS": str(MOST_MILLISECONDS),
            "CLAUDE_STREAM_IDLE_TIMEOUT_MS": str(MOST_MILLISECONDS),
            "CLAUDE_CODE_MAX_RETRIES": "1000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
            # the memory's folder, with the workspace's path in its name, would be in the prompt
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            # else the system prompt begins with a line that differs between calls
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            "IS_SANDBOX": "1",  # else it refuses to work as root without asking
        }
        task = start.file("task.md")
        arguments = ("-p", "--dangerously-skip-permissions", "--output-format", "json", "--verbose")
        return Launch(self.script(start, arguments, variables, stdin=task), {task: start.task.encode()})
