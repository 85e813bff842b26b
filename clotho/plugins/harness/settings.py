"""Settings that a run has for harnesses: where their programs are, and a command of its own."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from clotho.plugin_settings import RunPluginSettings

DialectPath = Literal["chat/completions", "responses", "messages"]
PATH_ENTRY = re.compile(r"/[^:\0\n]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class HarnessSettings(RunPluginSettings):
    """Settings of the programs that act with a loop of their own."""

    plugin: ClassVar[str] = "harness"

    path: str = ""
    """Folders of the sandbox in which programs are looked for first, with colons between them: /opt/agents/bin."""
    version: str = ""
    """Version that the program has to be, as it tells itself: another one is refused. Default: any."""
    variables: dict[str, str] = {}
    """Further environment variables of the program, in place of those that it gets otherwise."""
    own_failures: tuple[Annotated[int, Field(ge=1, le=255)], ...] = ()
    """Further exit codes that say the program failed by itself: it then starts anew, and nothing is scored."""
    command: tuple[str, ...] = ()
    """For `command`: the program and its arguments. {task_file}, {url}, {key}, {model}, {workdir} and {home} are
    filled in; {url} is without /v1."""
    dialect: DialectPath = "chat/completions"
    """For `command`: the path below /v1/ at which it asks for the model."""
    port: Annotated[int, Field(ge=1024, le=65535)] = 4180
    """The port of the sandbox's loopback at which the model is reached."""

    @field_validator("path")
    @classmethod
    def _folders(cls, path: str) -> str:
        if path and not all(PATH_ENTRY.fullmatch(each) for each in path.split(":")):
            raise ValueError("give absolute paths of folders, with colons between them")
        return path

    @field_validator("variables")
    @classmethod
    def _names(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            if VARIABLE.fullmatch(name) is None or "\0" in value:
                raise ValueError(f"{name!r} can't be an environment variable with such a value")
        return variables
