"""Grading: the task's tests in an instance that the agent didn't touch, and the rewards that they leave."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from clotho.tasks.folder import Task, TaskFiles
from clotho.templates import TEMPLATE

HIDDEN = "tests"
"""Folder of the tests among the hidden files."""
LOG = "/logs/verifier/test-stdout.txt"
REWARDS = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
FINISHED = "the tests have ended"
"""Printed when they have: a time-out leaves it out."""
LOG_CHARACTERS = 4_000


def tests_command(task: Task, variables: Mapping[str, str]) -> str:
    """Copies the tests into an emptied /tests, empties /logs/verifier, and runs tests/test.sh.

    Its exit code says nothing. `variables` are those of the verifier, resolved.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"""\
rm -rf /logs/verifier /tests/..?* /tests/.[!.]* /tests/*
mkdir -p /logs/verifier && cp -R "$CLOTHO_HIDDEN_FILES"/{HIDDEN}/. /tests/ || exit 1
chmod +x {_paths("/tests", task.tests, "test.sh")}
{exports}(/tests/test.sh) > {LOG} 2>&1
echo {shlex.quote(FINISHED)}
"""


def solution_command(task: Task, files: TaskFiles, variables: Mapping[str, str]) -> str:
    """Runs solution/solve.sh as the oracle, in the working directory."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"""\
chmod +x {_paths("/solution", files, "solve.sh")}
export DEBIAN_FRONTEND=noninteractive
{exports}(/solution/solve.sh) 2>&1 | tee /logs/agent/oracle.txt
"""


def _paths(folder: str, files: TaskFiles, script: str) -> str:
    return " ".join(shlex.quote(f"{folder}/{name}") for name in sorted({*files.executable, script}))


@dataclass(frozen=True)
class Secrets:
    """The values that came from the workers' environment: no log shows them."""

    values: tuple[str, ...]

    @classmethod
    def among(cls, templates: Mapping[str, str], resolved: Mapping[str, str]) -> "Secrets":
        taken = (resolved[name] for name, value in templates.items() if TEMPLATE.fullmatch(value))
        return cls(tuple(sorted((value for value in taken if value), key=len, reverse=True)))

    def hidden_in(self, text: str) -> str:
        for value in self.values:
            text = text.replace(value, "***")
        return text


def shown_log(content: bytes | None, secrets: Secrets) -> str:
    """The end of the tests' output."""
    return secrets.hidden_in((content or b"").decode(errors="replace"))[-LOG_CHARACTERS:]
