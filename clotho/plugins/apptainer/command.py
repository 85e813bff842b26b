"""Apptainer's command line, or Singularity's, which takes the same."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.plugins.containers.known_failures import Request, failure_of

NAMES = ("apptainer", "singularity")
LOG_CHARS = 2_000
ISOLATED = (
    *("--containall", "--no-home", "--no-init", "--no-eval", "--no-umask"),
    *("--net", "--network", "none", "--no-mount", "sys,home,bind-paths"),
)
"""No folder, variable or network of the host's, and no process between the kernel and the supervisor."""


@dataclass(frozen=True)
class Apptainer:
    """The program at `path`."""

    path: str

    @staticmethod
    def installed() -> "Apptainer | None":
        return next((Apptainer(path) for name in NAMES if (path := shutil.which(name)) is not None), None)

    @cached_property
    def _prefix(self) -> str:
        """What begins the name of a variable that the program is to hand on."""
        return f"{Path(self.path).name.upper()}ENV_"

    def handed_on(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {f"{self._prefix}{name}": value for name, value in variables.items()}

    def execute(self, image: Path, mounts: Sequence[str], arguments: Sequence[str] = ()) -> list[str]:
        """The command line up to what is executed in the image."""
        mounted = (word for each in mounts for word in ("--mount", each))
        return [self.path, "--quiet", "exec", *ISOLATED, *arguments, *mounted, str(image)]

    def build(self, folder: Path, source: str, seconds: float) -> None:
        """Unpack an image into `folder`. Raises InvalidInput for none, SandboxUnavailable for an outage."""
        command = [
            self.path,
            "--quiet",
            "build",
            "--force",
            # its cache would hold each image once more, in the home of the worker's user
            "--disable-cache",
            "--sandbox",
            str(folder),
            source,
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise SandboxUnavailable(f"image {source} can't be unpacked within {seconds:g} s") from None
        if done.returncode != 0:
            said = done.stderr.strip()[-LOG_CHARS:]
            subject = f"image {source} can't be unpacked"
            # a file of this host, unless its disk has no room for what is in it
            if "://" not in source and "no space left" not in said.lower():
                raise InvalidInput(f"{subject}: {said}")
            raise failure_of(subject, said, Request.PULL)


def bind(source: Path | str, seen: str, *, read_only: bool = False) -> str:
    """A mount, in the words of `--mount`, where paths may hold commas, colons and quotes."""
    fields = ["type=bind", f"source={source}", f"destination={seen}", *(["ro"] if read_only else [])]
    return ",".join('"' + each.replace('"', '""') + '"' for each in fields)
