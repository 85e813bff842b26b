"""Codex CLI: the Responses API, always streamed."""

import json
import re
from typing import ClassVar

from clotho.plugins.harness.digest import Volatile
from clotho.plugins.harness.harnesses.harness import Harness, Launch, Start

DAY_MILLISECONDS = 24 * 3600 * 1000
MOST_RETRIES = 100
"""The most that it takes."""


class Codex(Harness):
    name: ClassVar = "codex"
    program: ClassVar = "codex"
    dialect: ClassVar = "responses"
    install: ClassVar = (
        "`npm install --ignore-scripts --prefix FOLDER/codex codex@npm:@openai/codex@VERSION-linux-x64`, and a "
        "link FOLDER/bin/codex to the program below its vendor folder (`make harnesses` does both)"
    )
    # ids of sessions are random, too, and stay: a repeated answer that writes to one would find none
    volatile: ClassVar = (
        Volatile("tool", re.compile(r"\AChunk ID: [0-9a-f]{6}\nWall time: \d+\.\d+ seconds\n")),
        Volatile("user", re.compile(r"(?<=</shell>\n  <current_date>)\d{4}-\d\d-\d\d(?=</current_date>\n)")),
    )

    def start(self, start: Start) -> Launch:
        provider = {
            "name": "gateway",
            "base_url": f"{start.url}/v1",
            "env_key": "CODEX_GATEWAY_KEY",
            "wire_api": "responses",
            "request_max_retries": MOST_RETRIES,
            "stream_max_retries": MOST_RETRIES,
            # by default it cuts a stream after 300 s without an event, which an outage may outlast
            "stream_idle_timeout_ms": DAY_MILLISECONDS,
        }
        config = {
            "model": start.model,
            "model_provider": "gateway",
            **({"model_context_window": start.context_tokens} if start.context_tokens else {}),
            "check_for_update_on_startup": False,
            "web_search": "disabled",
            "analytics.enabled": False,
            **{f"model_providers.gateway.{name}": value for name, value in provider.items()},
        }
        home, task = f"{start.home}/.codex", start.file("task.md")
        arguments = (
            "exec",
            "--json",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "-",
        )
        variables = {"CODEX_HOME": home, "CODEX_GATEWAY_KEY": start.key}
        files = {f"{home}/config.toml": _toml(config), task: start.task.encode()}
        return Launch(self.script(start, arguments, variables, stdin=task), files)


def _toml(fields: dict[str, object]) -> bytes:
    """Dotted keys, and values that TOML writes as JSON does: an escape of JSON is one of TOML's basic strings."""
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items())
    return "".join(lines).replace("\x7f", "\\u007f").encode()
