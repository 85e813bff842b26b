"""mini-swe-agent: chat completions through LiteLLM, not streamed, with one tool."""

import json
import re
from typing import ClassVar

from clotho.plugins.harness.digest import Volatile
from clotho.plugins.harness.harnesses.harness import Harness, Launch, Start

TIMEOUT_SECONDS = 30 * 24 * 3600
"""An answer may take as long as a pause."""
UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that YAML takes as escapes alone."""


class MiniSweAgent(Harness):
    name: ClassVar = "mini-swe-agent"
    program: ClassVar = "mini"
    dialect: ClassVar = "chat/completions"
    install: ClassVar = (
        "`pip install --target FOLDER/mini mini-swe-agent mcp` with a Python of the minor version that the "
        "sandboxes' python3 has, and a script FOLDER/bin/mini that runs it from there (`make harnesses` does both)"
    )
    version_option: ClassVar = "--help"
    """It has no other that starts nothing; its first line names the version."""
    volatile: ClassVar = (
        Volatile("user", re.compile(r"(?<=<system_information>\n)Linux [^\n]+(?=\n</system_information>)")),
    )

    def start(self, start: Start) -> Launch:
        """The address and the key are in a file: commands of the agent inherit the program's variables."""
        config = {
            "run": {"task": start.task},
            # confirm_exit asks a person at the end, and nobody answers
            "agent": {"mode": "yolo", "confirm_exit": False, "cost_limit": 0},
            "environment": {"cwd": start.workdir},
            "model": {
                "model_name": f"openai/{start.model}",
                "cost_tracking": "ignore_errors",
                "model_kwargs": {
                    "api_base": f"{start.url}/v1",
                    "api_key": start.key,
                    "timeout": TIMEOUT_SECONDS,
                },
            },
        }
        variables = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_GLOBAL_CONFIG_DIR": start.file("mini"),
            "MSWEA_SILENT_STARTUP": "1",
        }
        file = start.file("task.yaml")
        # it looks for mini.yaml where it starts first: the task's own folder may have such a file
        script = self.script(start, ("-c", "mini.yaml", "-c", file), variables, folder=start.folder)
        return Launch(script, {file: _yaml(config)})


def _yaml(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()
