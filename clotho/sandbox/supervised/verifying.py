"""Steps from an agent's instance to a verifier's, which are the same for all backends. Everything blocks."""

import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.sandbox.checkpoints import ShellState
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.jobs import Jobs
from clotho.sandbox.verification import AS_AGENT, HIDDEN_FILES, VerifierSetup

SEAL_SECONDS = 10.0


def seal(agent: Control) -> None:
    """End the agent's processes for good; its supervisor stays, and with it the lease."""
    # on a full disk the supervisor could never say that it has sealed
    agent.require_room()
    # The supervisor ends them: those that left their job's session are its children all the same.
    agent.say("seal")
    deadline = time.monotonic() + SEAL_SECONDS
    while not agent.sealed():
        if time.monotonic() > deadline:
            raise SandboxUnavailable("the agent's processes don't end")
        time.sleep(0.002)


def check_hidden(names: Iterable[str], placed: bool = False) -> None:
    """Raises InvalidInput for a name that leads out of the folder of hidden files.

    Where a backend has files at paths of their own (`placed`), it checks absolute names as it makes them.
    """
    for name in names:
        path = PurePosixPath(name.lstrip("/") if placed else name)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise InvalidInput(f"hidden file {name!r}: not a path inside the folder")


def expanded(directory: str, variables: Mapping[str, str]) -> str:
    """`directory` with the value of the variable that it begins with, as a shell has it; `~` is HOME."""
    first, slash, rest = directory.partition("/")
    name = "HOME" if first == "~" else first.removeprefix("$") if first.startswith("$") else ""
    return f"{variables[name]}{slash}{rest}" if name in variables else directory


def stage_start(
    setup: VerifierSetup,
    directory: str,
    workspace: str,
    control: Control,
    agent: Control,
    exports: str = "",
) -> None:
    """Stage the directory of a verifier's first command, as if a job had left it: the agent's last one, if any."""
    if setup.start is None:
        return
    left = Jobs(agent).shell_state(setup.after, workspace) if setup.after else None
    cwd = left.cwd if left else directory.encode().decode("latin-1")
    shell = ShellState(job=setup.start, cwd=cwd, exports=exports, workspace=workspace)
    Jobs(control).stage_shell(shell, workspace)


def verifying_variables(
    own: Mapping[str, str], setup: VerifierSetup | None, private: str | None
) -> dict[str, str]:
    """The variables of an instance: the agent's `own`, and those of a verifier.

    `private` is the folder of a verifier's instance; without it, verification runs in the agent's.
    """
    if setup is None:
        return dict(own)
    # the shell splits the prefix at white space and expands patterns in it: such values are left out
    prefix = " ".join(f"{name}={value}" for name, value in own.items() if not set(value) & set(" \t\n*?["))
    variables = {**own, **setup.variables(), AS_AGENT: f"env -i {prefix}"}
    if private is None:
        return variables
    temporary = f"{private}/tmp"
    return {
        **variables,
        HIDDEN_FILES: f"{private}/hidden",
        "TMPDIR": temporary,
        "XDG_CONFIG_HOME": f"{temporary}/config",
    }


def exports_of(variables: Mapping[str, str]) -> str:
    """`variables` as bash's `export -p` prints them."""
    return "".join(f"declare -x {name}={shlex.quote(value)}\n" for name, value in variables.items())
