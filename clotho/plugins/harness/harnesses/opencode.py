"""opencode: chat completions through the AI SDK's OpenAI-compatible provider, always streamed."""

import json
import re
from typing import ClassVar

from clotho.plugins.harness.digest import Volatile
from clotho.plugins.harness.harnesses.harness import Harness, Launch, Start

CONTEXT_TOKENS, OUTPUT_TOKENS = 128_000, 8_192
"""Where nothing is known of the model."""


class OpenCode(Harness):
    name: ClassVar = "opencode"
    program: ClassVar = "opencode"
    dialect: ClassVar = "chat/completions"
    install: ClassVar = (
        "`npm install --ignore-scripts --prefix FOLDER/opencode opencode-linux-x64`, and a link "
        "FOLDER/bin/opencode to its program"
    )
    volatile: ClassVar = (
        Volatile(
            "system", re.compile(r"(?<=\n  Today's date: )[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4}(?=\n</env>)")
        ),
    )
    aside_without_tools: ClassVar = True

    def start(self, start: Start) -> Launch:
        tokens = start.context_tokens or CONTEXT_TOKENS
        limit = {"context": tokens, "output": min(OUTPUT_TOKENS, tokens // 2)}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            # no timeout: by default it cuts a silent answer after 300 s
            "options": {"baseURL": f"{start.url}/v1", "apiKey": start.key, "timeout": False},
            "models": {start.model: {"limit": limit}},
        }
        config = {
            "autoupdate": False,
            "share": "disabled",
            "model": f"gateway/{start.model}",
            "small_model": f"gateway/{start.model}",
            "permission": "allow",
            # a title costs a call of the model that is no part of the task
            "agent": {"title": {"disable": True}},
            "provider": {"gateway": provider},
        }
        variables = {
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        task = start.file("task.md")
        files = {
            f"{start.home}/.config/opencode/opencode.json": json.dumps(config).encode(),
            task: start.task.encode(),
        }
        arguments = ("run", "--format", "json", "--title", "Task")
        return Launch(self.script(start, arguments, variables, stdin=task), files)
