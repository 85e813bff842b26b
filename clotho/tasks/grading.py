"""Grading: the task's tests in an instance that the agent didn't touch, and the rewards that they leave."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from posixpath import join, normpath

from clotho.tasks.folder import Task, TaskFiles
from clotho.templates import TEMPLATE

HIDDEN = "tests"
"""Folder of the tests among the hidden files."""
LOG = "/logs/verifier/test-stdout.txt"
OF_THE_VERIFIER = ("/logs/verifier/", "/tests/")
REWARDS = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
PREPARING_SECONDS = 600
LOG_CHARACTERS = 4_000
LOG_BYTES = 4 * LOG_CHARACTERS
"""Most bytes read from the end of the tests' output, which may be of any size."""


def preparing_command(task: Task) -> str:
    """Copies the tests into an emptied /tests, and empties /logs/verifier; fails where the agent prevented it.

    Neither its arguments nor its output hold names that the agent chose. No link of the agent's is followed.
    """
    return f"""\
(
[ -d /logs ] && [ ! -L /logs ] || rm -f /logs
mkdir -p /logs
[ ! -L /logs ] || exit 1
chmod u+rwx /logs
for folder in /logs/verifier /tests; do
  [ -L $folder ] || chmod -R u+rwX $folder
  rm -rf $folder
  mkdir -p $folder
  [ -d $folder ] && [ ! -L $folder ] && [ "$(ls -A $folder && echo nothing)" = nothing ] || exit 1
done
cp -R "$CLOTHO_HIDDEN_FILES"/{HIDDEN}/. /tests/ && chmod +x {_paths("/tests", task.tests, "test.sh")}
) > /dev/null 2>&1
"""


def of_the_verifier(path: str, directory: str) -> bool:
    """Whether `path`, absolute or below `directory`, is where the tests are or leave their rewards."""
    named = "/" + normpath(join(directory, path)).lstrip("/")
    return f"{named}/".startswith(OF_THE_VERIFIER)


def emptying_command(folders: Iterable[str]) -> str:
    """Makes `folders` empty ones in a sandbox that has nothing of the agent's but the files that were kept."""
    return f"""\
(
mkdir -p /logs/artifacts
for folder in {shlex.join(folders)}; do
  rm -rf $folder
  mkdir -p $folder && [ "$(ls -A $folder && echo nothing)" = nothing ] || exit 1
done
)
"""


def executable_command(paths: Iterable[str]) -> str:
    return "".join(f"chmod +x -- {shlex.quote(path)}\n" for path in paths)


def tests_command(variables: Mapping[str, str]) -> str:
    """Runs tests/test.sh, whose exit code says nothing: the command's is 0 unless it was ended before its end.

    `variables` are those of the verifier, resolved.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"({exports}/tests/test.sh) > {LOG} 2>&1\ntrue\n"


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

    def beginning_after(self, cut: str) -> str:
        """`cut` without the last part of a value, if it begins with one."""
        parts = (value[at:] for value in self.values for at in range(1, len(value)))
        return cut[max((len(part) for part in parts if cut.startswith(part)), default=0) :]


def log_command() -> str:
    """Prints the size of the tests' output and, from the second line on, the end of it."""
    return f"[ -f {LOG} ] && wc -c < {LOG} && tail -c {LOG_BYTES} {LOG}"


def shown_log(printed: str, secrets: Secrets) -> str:
    """The end of the tests' output, of which `log_command` printed more."""
    size, _, end = printed.partition("\n")
    if not (size.isdecimal() and int(size) <= LOG_BYTES):
        end = secrets.beginning_after(end.lstrip("\ufffd"))
    return secrets.hidden_in(end)[-LOG_CHARACTERS:]
