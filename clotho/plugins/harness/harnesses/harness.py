"""A harness: a program that acts in a sandbox with a loop of its own, and asks a gateway there for the model."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from clotho.plugins.harness.digest import Volatile
from clotho.plugins.harness.settings import HarnessSettings

NOT_STARTED = frozenset({126, 127})
"""A shell's exit codes for a program that it can't execute, or doesn't find."""
BY_SIGNAL = range(129, 160)
"""A shell's exit codes for a program that a signal has ended, which nobody meant as the agent's end."""
INHERITED = ("ANTHROPIC", "CLAUDE", "CODEX", "GEMINI", "LITELLM", "MSWEA", "OPENAI", "OPENCODE")
"""Begin the names of variables by which harnesses are configured: those of images and runs have no effect."""
# the gateway is on the sandbox's loopback: a proxy that an image sets can't reach it
NO_PROXY = "127.0.0.1,localhost"


@dataclass(frozen=True)
class Start:
    """What a harness is started with."""

    task: str
    url: str
    """The gateway's address in the sandbox, without /v1."""
    key: str
    """The API key that tells this start from others."""
    model: str
    workdir: str
    home: str
    context_tokens: int | None = None
    """The model's context, where it is known."""

    @property
    def folder(self) -> str:
        """The folder with the files of a start that aren't the program's own."""
        return f"{self.home}/.harness"

    def file(self, name: str) -> str:
        return f"{self.folder}/{name}"


@dataclass(frozen=True)
class Launch:
    """A start as a sandbox takes it."""

    script: str
    """For bash. The task is in a file: an argument has at most 128 KiB."""
    files: Mapping[str, bytes]
    """Written before; absolute paths."""


@dataclass(frozen=True)
class Harness(ABC):
    """One kind of harness, with a run's settings for it."""

    settings: HarnessSettings

    name: ClassVar[str]
    install: ClassVar[str]
    """A sentence: how to get it into a folder."""
    version_option: ClassVar[str] = "--version"
    failures: ClassVar[frozenset[int]] = frozenset({1, 2})
    """Exit codes with which it gives up by itself; every one of them ends with 0 when the model is done."""
    volatile: ClassVar[tuple[Volatile, ...]] = ()
    """As narrow as measured: what is replaced tells no two requests apart."""
    aside_without_tools: ClassVar[bool] = False
    """Whether its requests without tools are beside the task, such as for a title."""

    @property
    @abstractmethod
    def program(self) -> str:
        """The executable that has to be on the sandbox's PATH."""

    @property
    @abstractmethod
    def dialect(self) -> str:
        """The path below /v1/ at which it asks for the model."""

    @abstractmethod
    def start(self, start: Start) -> Launch: ...

    @property
    def own_failures(self) -> frozenset[int]:
        """Exit codes that are the harness's own failure, and no end of the agent's work."""
        return self.failures | NOT_STARTED | frozenset(self.settings.own_failures)

    @property
    def version_command(self) -> str:
        """A script that prints the program's version, and fails where it can't be started."""
        command = shlex.join((self.program, self.version_option))
        return "\n".join((*self._environment({}), f"{command} </dev/null"))

    def script(
        self,
        start: Start,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        folder: str | None = None,
        stdin: str = "/dev/null",
    ) -> str:
        """The script that runs the program in `folder`, by default the working directory."""
        command = shlex.join((self.program, *arguments))
        return "\n".join(
            (
                *self._environment(variables),
                f"cd -- {shlex.quote(folder or start.workdir)} || exit",
                f"{command} < {shlex.quote(stdin)}",
            )
        )

    def _environment(self, variables: Mapping[str, str]) -> Sequence[str]:
        own = {"NO_PROXY": NO_PROXY, "no_proxy": NO_PROXY, **variables, **self.settings.variables}
        first = f"{shlex.quote(self.settings.path)}:" if self.settings.path else ""
        return (
            " ".join(("unset", *(f'"${{!{name}_@}}"' for name in INHERITED))),
            f'export PATH={first}"$PATH"',
            *(f"export {name}={shlex.quote(value)}" for name, value in own.items()),
        )
