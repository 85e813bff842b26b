"""The setup of a verifier's instance: its first directory, and the configuration that its tools load."""

from typing import Annotated

from clotho.frozen_model import WHERE_SET, FrozenModel

HIDDEN_FILES = "CLOTHO_HIDDEN_FILES"
"""The variable that holds the folder of the hidden files. Its name is drawn for each epoch: no link leads there."""
AS_AGENT = "CLOTHO_AS_AGENT"
"""The variable that holds a command prefix, `env -i …`: what follows has the agent's variables and no others."""

WITHOUT_START_UP_FILES = {
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "GOENV": "off",
    "INPUTRC": "/dev/null",
    "JUPYTER_NO_CONFIG": "1",
    "PSQLRC": "/dev/null",
    "R_ENVIRON_USER": "/dev/null",
    "R_PROFILE_USER": "/dev/null",
    "WGETRC": "/dev/null",
    "ZDOTDIR": "/nonexistent",
}
"""Programs load nothing from the agent's home by themselves. `bash -l`, `bash -i` and `sqlite3` do all the same."""

_GIT = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.attributesFile": "/dev/null",
    "log.showSignature": "false",
    "safe.directory": "*",
}

WITHOUT_WORKSPACE_CONFIGURATION = {
    "PYTHONSAFEPATH": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "--noconftest -c /dev/null -p no:cacheprovider",
    "PIP_CONFIG_FILE": "/dev/null",
    "NPM_CONFIG_USERCONFIG": "/dev/null",
    "NPM_CONFIG_GLOBALCONFIG": "/dev/null",
    "NPM_CONFIG_IGNORE_SCRIPTS": "true",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_COUNT": str(len(_GIT)),
    **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(_GIT)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_GIT.values())},
}
"""Tools that the verifier starts load none of the workspace's modules, plugins, hooks and settings, as far as
variables can tell them. What they can't is in docs/verifiers.md."""


class VerifierSetup(FrozenModel):
    """The start of a verifier: its directory and environment."""

    start: str | None = None
    """Key of the job that holds the first command's directory, made unless it is there."""
    after: str | None = None
    """The agent's job whose directory that is."""
    directory: str = "/work"
    """The directory, where no such job has left one. May begin with ~, $TMPDIR or $CLOTHO_HIDDEN_FILES."""
    trust_workspace: bool = False
    """Whether tools load the workspace's configuration, as the agent's own commands do."""
    only_reads: Annotated[bool, WHERE_SET] = False
    """Whether files of the agent's folders are read, and no more so far: then a backend may give the agent's own
    instance, its processes having ended."""
    incarnation: Annotated[str, WHERE_SET] = ""
    """The agent's instance, whose sandbox is verified. By it a backend of many hosts finds the sandbox, of which an
    attempt whose host went out of reach may have made one more."""

    def variables(self) -> dict[str, str]:
        """Environment variables that keep the agent's files out of the verifier's programs."""
        if self.trust_workspace:
            return WITHOUT_START_UP_FILES
        return {**WITHOUT_START_UP_FILES, **WITHOUT_WORKSPACE_CONFIGURATION}


USUAL = VerifierSetup()
