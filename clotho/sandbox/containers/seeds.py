"""What an image has in the folders that sandboxes write to: archived once for an image, unpacked in each sandbox.

These folders are mounted over the image's own. Its content there is packed by a supervisor in a container of the
image, and unpacked by that of the sandbox, as a checkpoint is: no program of this host looks inside.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.frozen_model import FrozenModel
from clotho.sandbox.backend import MAX_CHECKPOINT_BYTES, SandboxInstance
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.supervised.archives import ArchiveTransfer
from clotho.sandbox.supervised.instance import SupervisedSandbox

PACK_SECONDS = 600


class Seed(FrozenModel):
    """`checkpoint` is None for an image that has nothing there."""

    checkpoint: Checkpoint | None


@dataclass(frozen=True)
class SeedFiles:
    """The files of one seed."""

    folder: Path
    key: str

    @classmethod
    def of(cls, root: Path, image: str, places: Mapping[str, str]) -> "SeedFiles":
        """`places` are the folders by their labels in the archive."""
        text = "\n".join((image, *(f"{label} {path}" for label, path in sorted(places.items()))))
        return cls(root / "seeds", hashlib.sha256(text.encode()).hexdigest()[:20])

    @property
    def blob(self) -> Path:
        return self.folder / f"{self.key}.tar.zst"

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.key}.lock"

    @property
    def _description(self) -> Path:
        return self.folder / f"{self.key}.json"

    def read(self) -> Seed | None:
        """None before it was made."""
        try:
            return Seed.model_validate_json(self._description.read_text())
        except FileNotFoundError:
            return None

    def write(self, seed: Seed) -> None:
        unfinished = self._description.with_suffix(".unfinished")
        unfinished.write_text(seed.model_dump_json())
        unfinished.rename(self._description)

    def restore(self, seed: Seed) -> Restore | None:
        return None if seed.checkpoint is None else Restore(seed.checkpoint, self.blob)


async def folders_there(sandbox: SandboxInstance, places: Mapping[str, str]) -> dict[str, str]:
    """Those of `places` that are folders in the image."""
    found = {label: await sandbox.read_file(path, 1) for label, path in places.items()}
    return {label: path for label, path in places.items() if found[label].error == "is_directory"}


def packed(sandbox: SupervisedSandbox, places: Mapping[str, str], to: Path, image: str) -> Checkpoint:
    """Archive `places`. Raises InvalidInput for more than a sandbox can begin with. Blocks."""
    fields = {"max": str(MAX_CHECKPOINT_BYTES), "timeout_ms": str(PACK_SECONDS * 1000)}
    taken = ArchiveTransfer(sandbox.control, sandbox.incarnation, secrets.token_hex(16)).pack(
        fields, places, to
    )
    if taken.word == "too_large":
        raise InvalidInput(
            f"{image} holds {taken.size >> 20} MiB where sandboxes have their workspace and home: "
            "give another workdir or home"
        )
    if taken.word != "ok":
        raise SandboxUnavailable(f"what {image} holds can't be archived: {taken.word} {taken.size}")
    return Checkpoint(
        digest=taken.digest,
        size=taken.blob_size,
        content_size=taken.content_size,
        exact=False,
        fingerprint="",
        shell=None,
        sessions=(),
    )
