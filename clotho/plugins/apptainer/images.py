"""Images as folders: the first sandbox that asks for a file or a name has it unpacked, and the folder is kept."""

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.plugins.apptainer.command import Apptainer
from clotho.sandbox.supervised.folders import lock

UNPACK_SECONDS = 3_600.0
WITH_SOURCE = re.compile(r"[a-z-]+:/")
"""The beginning of `docker://…`, `oras://…`, `docker-archive:/…`: where Apptainer is to take an image from."""


@dataclass(frozen=True)
class Images:
    """The unpacked images of one backend, below `root`."""

    root: Path
    apptainer: Apptainer

    def folder(self, image: str) -> Path:
        """Raises InvalidInput for an image that isn't there, SandboxUnavailable for an outage."""
        if not image.startswith("/"):
            return self._unpacked(image if WITH_SOURCE.match(image) else f"docker://{image}", image)
        path = Path(image)
        try:
            found = path.stat()
        except OSError as error:
            raise InvalidInput(f"there is no image {image} on this host: {error.strerror}") from error
        if path.is_dir():
            return path
        # another file of the same name is another image
        return self._unpacked(
            image, f"{image} {found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}"
        )

    def _unpacked(self, source: str, identity: str) -> Path:
        folder = self.root / hashlib.sha256(identity.encode()).hexdigest()[:24]
        if folder.exists():
            return folder
        self.root.mkdir(mode=0o711, parents=True, exist_ok=True)
        with lock(self.root / f"{folder.name}.lock"):
            if not folder.exists():
                unfinished = folder.with_suffix(".unfinished")
                # left by a process that was killed
                shutil.rmtree(unfinished, ignore_errors=True)
                self.apptainer.build(unfinished, source, UNPACK_SECONDS)
                # sandboxes have users of their own, who pass through it
                unfinished.chmod(0o755)
                unfinished.rename(folder)
        return folder
