"""Grading: the task's tests in an instance that the agent didn't touch, and the rewards that they leave.

The tests are trusted, and the program that they run is the agent's. So what they leave running ends before their
reward is read, their own files are mounted read-only, and the reward is one that tests can mean.
"""

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from posixpath import join, normpath
from typing import Any, Protocol

from clotho.errors import EnvironmentFailed, VerificationFailed, WorkspaceRefused
from clotho.plugins.task_folders.folder import Task, TaskFiles
from clotho.plugins.task_folders.rewards import LARGEST_REWARD_FILE, parse_rewards, score_of
from clotho.templates import TEMPLATE

TESTS = "/tests"
LOG = "/logs/verifier/test-stdout.txt"
OF_THE_VERIFIER = ("/logs/verifier/", "/tests/")
REWARDS = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
NO_REWARD_FILE = 9
"""Exit code for something that no reward is read from."""
PREPARING_SECONDS = 600
PASSES = 100
"""Looks for processes that the tests have left running: some may start others meanwhile."""
LOG_CHARACTERS = 4_000
# UTF-8 has at most 4 bytes for a character
LOG_BYTES = 4 * LOG_CHARACTERS
"""Most bytes read from the end of the tests' output, which may be of any size."""


class Sandbox(Protocol):
    """The verifier's tools that running tests takes."""

    def terminal(self, command: str, timeout: float = ..., /) -> dict[str, Any]: ...

    def call_tool(self, name: str, arguments: dict[str, Any], /) -> str: ...

    def read_bytes(self, path: str, max_bytes: int = ..., /) -> bytes | None: ...

    def write_bytes(self, path: str, content: bytes, /) -> None: ...


@dataclass(frozen=True)
class Graded:
    score: float
    rewards: dict[str, float]
    log: str


def run_tests(ctx: Sandbox, task: Task, variables: Mapping[str, str], secrets: "Secrets") -> Graded:
    """Run tests/test.sh, end what it leaves running, and read its reward.

    `variables` are those of the verifier, resolved. Raises VerificationFailed where there is no valid reward, with
    the end of the tests' output.
    """
    seconds = task.file.verifier.timeout_sec
    # in the background: tests may take longer than a command in the foreground may
    asked = {"command": tests_command(variables), "background": True}
    started = json.loads(ctx.call_tool("terminal", asked))
    if "session_id" not in started:
        raise EnvironmentFailed(f"the tests can't be started: {started.get('error')}")
    session = {"session_id": started["session_id"]}
    waiting = {"action": "wait", "timeout": max(1, math.ceil(seconds)), **session}
    ended = json.loads(ctx.call_tool("process", waiting))
    ctx.call_tool("process", {"action": "kill", **session})  # what has ended has left others, perhaps
    looked = ctx.terminal(log_command())
    log = shown_log(looked["output"], secrets)
    try:
        # the command ends in `true`: another code is a kill
        if ended.get("exit_code") != 0:
            raise VerificationFailed(f"the tests didn't end within {seconds:g} s, or were killed")
        if looked["exit_code"] == NO_REWARD_FILE:
            raise VerificationFailed(
                f"reward.json or reward.txt is no regular file of at most {LARGEST_REWARD_FILE >> 20} MiB"
            )
        rewards = parse_rewards(*(ctx.read_bytes(path, LARGEST_REWARD_FILE) for path in REWARDS))
        score, (lowest, highest) = score_of(rewards), task.file.metadata.clotho.reward_range
        if not lowest <= score <= highest:
            raise VerificationFailed(
                f"the reward is {score:g}, outside of [{lowest:g}, {highest:g}]: name another range as "
                "reward_range of [metadata.clotho], if the task means it"
            )
    except VerificationFailed as failed:
        raise VerificationFailed(f"{failed}\n{log}") from None
    return Graded(score, rewards, log)


def put_tests(ctx: Sandbox, task: Task) -> None:
    """Write the tests where no file can be mounted."""
    for name, content in task.tests.content.items():
        ctx.write_bytes(f"{TESTS}/{name}", content)


def make_ready(ctx: Sandbox, command: str) -> str:
    """Make a sandbox ready in which the agent has never been; returns what the command prints."""
    made = ctx.terminal(command, PREPARING_SECONDS)
    if made["exit_code"] != 0:
        raise EnvironmentFailed(f"the verifier's sandbox can't be made ready: {made['output']}")
    return str(made["output"])


def prepare(ctx: Sandbox, task: Task, placed: bool) -> None:
    """Make the agent's sandbox ready for the tests; where they are `placed`, it has them already.

    Raises WorkspaceRefused where the agent prevented it.
    """
    emptied = ("/logs/verifier",) if placed else ("/logs/verifier", TESTS)
    done = ctx.terminal(preparing_command(emptied), PREPARING_SECONDS)
    if done["exit_code"] == 0 and not placed:
        put_tests(ctx, task)
        scripts = sorted({*task.tests.executable, "test.sh"})
        done = ctx.terminal(executable_command(f"{TESTS}/{name}" for name in scripts))
    if done["exit_code"] != 0 or ctx.terminal(f"[ -x {TESTS}/test.sh ]")["exit_code"] != 0:
        raise WorkspaceRefused("/logs/verifier and /tests can't be made ready for the tests")


def preparing_command(folders: Iterable[str]) -> str:
    """Empties /logs/verifier, and other `folders`; fails where the agent prevented it.

    Neither its arguments nor its output hold names that the agent chose. No link of the agent's is followed.
    """
    # `ls` of an empty folder prints nothing, so the word alone shows that it ran and found none
    return f"""\
(
[ -d /logs ] && [ ! -L /logs ] || rm -f /logs
mkdir -p /logs
[ ! -L /logs ] || exit 1
chmod u+rwx /logs
for folder in {shlex.join(folders)}; do
  [ -L $folder ] || chmod -R u+rwX $folder
  rm -rf $folder
  mkdir -p $folder
  [ -d $folder ] && [ ! -L $folder ] && [ "$(ls -A $folder && echo nothing)" = nothing ] || exit 1
done
) > /dev/null 2>&1
"""


def of_the_verifier(path: str, directory: str) -> bool:
    """Whether `path`, absolute or below `directory`, is where the tests are or leave their rewards."""
    named = "/" + normpath(join(directory, path)).lstrip("/")
    return f"{named}/".startswith(OF_THE_VERIFIER)


def emptying_command(folders: Iterable[str]) -> str:
    """Empties `folders` in a sandbox where the artifacts are all that is the agent's."""
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

    What test.sh has left running ends at once, before it can write another reward. The shell does that without
    another process: no program is looked up, and none takes time to start. Processes of other users are left to
    the supervisor. `variables` are those of the verifier, resolved.
    """
    # __others ran before the tests and are spared: this shell, its supervisor, services that the task keeps
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"""\
__others=" "
for __each in /proc/[0-9]*; do __others="$__others${{__each#/proc/}} "; done
({exports}/tests/test.sh) > {LOG} 2>&1
__pass=0
while [ $__pass -lt {PASSES} ]; do
  __pass=$((__pass + 1)) __left=
  for __each in /proc/[0-9]*; do
    __each=${{__each#/proc/}}
    case "$__others" in *" $__each "*) continue ;; esac
    kill -KILL "$__each" && __left=1
  done 2>/dev/null
  [ "$__left" ] || break
done
true
"""


def solution_command(task: Task, files: TaskFiles, variables: Mapping[str, str]) -> str:
    """Runs solution/solve.sh as the oracle, in the working directory."""
    # tee ends with 0: as with Harbor's oracle, tests alone judge, whatever solve.sh exits with
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
        # longest first below: a value may contain another
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
    """Prints the size of the tests' output and, from the second line on, the end of it.

    Fails with NO_REWARD_FILE for a reward that isn't in a regular file of a fair size.
    """
    return f"""\
[ -f {LOG} ] && wc -c < {LOG} && tail -c {LOG_BYTES} {LOG}
for file in {shlex.join(REWARDS)}; do
  [ -e $file ] || [ -L $file ] || continue
  [ -f $file ] && [ ! -L $file ] && [ "$(wc -c < $file)" -le {LARGEST_REWARD_FILE} ] || exit {NO_REWARD_FILE}
done
exit 0
"""


def shown_log(printed: str, secrets: Secrets) -> str:
    """The end of the tests' output, of which `log_command` printed more."""
    size, _, end = printed.partition("\n")
    if not (size.isdecimal() and int(size) <= LOG_BYTES):
        # the cut may go through a character, or through a secret
        end = secrets.beginning_after(end.lstrip("\ufffd"))
    return secrets.hidden_in(end)[-LOG_CHARACTERS:]
