"""Any command: it finds the model by the variables that clients of the usual APIs read, or by its arguments."""

import re
from typing import ClassVar

from clotho.errors import InvalidInput
from clotho.plugins.harness.harnesses.harness import Harness, Launch, Start

FIELD = re.compile(r"\{(task_file|url|key|model|workdir|home)\}")


class Command(Harness):
    """The program of the run's settings."""

    name: ClassVar = "command"
    install: ClassVar = (
        "have the program in the sandbox's image, or in a folder that `mounts` shows and `path` names"
    )
    failures: ClassVar = frozenset()

    @property
    def program(self) -> str:
        if not self.settings.command:
            raise InvalidInput("plugins.harness: the agent `command` needs a `command`")
        return self.settings.command[0]

    @property
    def dialect(self) -> str:
        return self.settings.dialect

    def start(self, start: Start) -> Launch:
        task = start.file("task.md")
        fields = {
            "task_file": task,
            "url": start.url,
            "key": start.key,
            "model": start.model,
            "workdir": start.workdir,
            "home": start.home,
        }
        variables = {
            "OPENAI_BASE_URL": f"{start.url}/v1",
            "OPENAI_API_KEY": start.key,
            "OPENAI_MODEL": start.model,
            "ANTHROPIC_BASE_URL": start.url,
            "ANTHROPIC_API_KEY": start.key,
            "ANTHROPIC_MODEL": start.model,
        }
        # other braces, such as those of JSON, stay as they are
        arguments = [FIELD.sub(lambda found: fields[found[1]], each) for each in self.settings.command[1:]]
        return Launch(self.script(start, arguments, variables), {task: start.task.encode()})
