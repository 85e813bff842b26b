"""The view of a sandbox in an image: a local one's, over the image in place of the host's `/usr`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clotho.plugins.apptainer.command import bind
from clotho.sandbox.local.bubblewrap import PROGRAM, View
from clotho.sandbox.places import AGENT_HOME, USUAL_VARIABLES

OF_THE_SANDBOX = "OF_THE_SANDBOX_"
"""Begins the names of the variables that are the sandbox's, among Apptainer's own."""


@dataclass(frozen=True, kw_only=True)
class ImageView(View):
    """`image` is its folder, `program` the supervisor's; `further` mounts are those of a probe."""

    image: Path
    program: Path
    of_image: Callable[[], Mapping[str, str]] = dict
    """The image's own variables."""
    prefix: str = OF_THE_SANDBOX
    """Of the variables that commands get, without it; empty: all."""
    further: tuple[str, ...] = ()

    def agents_environment(self) -> dict[str, str]:
        return {
            **USUAL_VARIABLES,
            **self.of_image(),
            "USER": "agent",
            "LOGNAME": "agent",
            "HOME": AGENT_HOME,
            **self.spec.variables,
        }

    @property
    def account_files(self) -> Path:
        """The folder with the files of /etc by which programs know the sandbox's user."""
        return self.folder.files / "etc"

    def image_mounts(self) -> Iterator[str]:
        yield from self.further
        yield bind(self.program, PROGRAM, read_only=True)
        for path in sorted(self.account_files.iterdir()):
            yield bind(path, f"/etc/{path.name}", read_only=True)
        for seen, path in self.mounts().items():
            yield bind(path, seen)
        for seen, folder in self.spec.mounts.items():
            yield bind(folder, seen, read_only=True)
        if self.private is not None:
            seen = self._seen_private(isolated=True)
            yield bind(self.private / "hidden", f"{seen}/hidden", read_only=True)
            yield bind(self.private / "tmp", f"{seen}/tmp")
            for each in self.placed():
                yield bind(each.source, each.seen, read_only=each.read_only)
