"""A plugin with a harness: `--agent plain` runs the program `plain-agent`, which asks by chat completions."""

import re
from typing import ClassVar

from clotho.plugin import Plugin
from clotho.plugins.harness.digest import Volatile
from clotho.plugins.harness.harnesses.harness import Harness, Launch, Start
from clotho.plugins.harness.program import HarnessRun
from clotho.plugins.harness.settings import HarnessSettings
from clotho.rollouts.agent_program import ProgramEntry, Stage

PLUGIN = Plugin("plain", agents={"plain": "plain_harness:run_plain"})


class Plain(Harness):
    name: ClassVar = "plain"
    program: ClassVar = "plain-agent"
    dialect: ClassVar = "chat/completions"
    install: ClassVar = "`pip install --target FOLDER plain-agent`"
    failures: ClassVar = frozenset({3})  # its model was out of reach
    volatile: ClassVar = (Volatile("tool", re.compile(r"\ATook \d+ ms\n")),)

    def start(self, start: Start) -> Launch:
        task = start.file("task.md")
        variables = {
            "OPENAI_BASE_URL": f"{start.url}/v1",
            "OPENAI_API_KEY": start.key,
            "OPENAI_MODEL": start.model,
        }
        return Launch(self.script(start, ("--task", task), variables), {task: start.task.encode()})


async def run_plain(stage: Stage) -> ProgramEntry:
    settings = stage.manifest.tool_settings.of(HarnessSettings) or HarnessSettings()
    return await HarnessRun(stage, settings, Plain(settings)).to_its_end()
