"""The content of an image in the folders that sandboxes write to: archived once, unpacked in each sandbox.

These folders are mounted over the image's own. Its content there is packed by a supervisor in a container of the
image, and unpacked by that of the sandbox, as a checkpoint is: no program of this host looks inside.
"""

import asyncio
import hashlib
import secrets
from collections.abc import ItemsView, Mapping
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.frozen_model import FrozenModel
from clotho.plugins.containers.accounts import PASSWD_BYTES
from clotho.plugins.containers.folders import ContainerFolder, ContainerRecord
from clotho.plugins.containers.host import ContainerHost
from clotho.plugins.containers.view import ContainerView, instance_of
from clotho.sandbox.backend import MAX_CHECKPOINT_BYTES, SandboxInstance
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.supervised.archives import ArchiveTransfer
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.instance import SupervisedSandbox

PACK_SECONDS = 600


class Seed(FrozenModel):
    """The packed content of an image; `restore` is None where the image has nothing in the folders."""

    checkpoint: Checkpoint | None
    blob: Path
    users: dict[str, int]
    """The ids of the image's users."""

    @property
    def restore(self) -> Restore | None:
        return None if self.checkpoint is None else Restore(self.checkpoint, self.blob)


@dataclass(frozen=True)
class Seeds:
    """The seeds of a backend's images, in files below its `root`. Everything blocks."""

    root: Path
    host: ContainerHost

    def key(self, record: ContainerRecord) -> str:
        """Sandboxes of equal keys have the same seed."""
        # with the labels: they are in the archive, and tell where it is unpacked
        text = "\n".join((record.image, *(f"{label} {path}" for label, path in sorted(self._places(record)))))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def _places(self, record: ContainerRecord) -> ItemsView[str, str]:
        return ContainerView(ContainerFolder(self.root, ""), record).layout().archived.items()

    def of(self, record: ContainerRecord) -> Seed:
        """The content of the image of `record` where the sandbox's folders are mounted."""
        folder, key = self.root / "seeds", self.key(record)
        description, blob = folder / f"{key}.json", folder / f"{key}.tar.zst"
        if not description.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            maker = ContainerFolder(self.root, f"seed-{key}")
            with maker.locked():
                if not description.exists():
                    unfinished = folder / f"{key}.unfinished"
                    unfinished.write_text(self._made(maker, blob, record).model_dump_json())
                    # last, and whole: where there is a description, there is the archive
                    unfinished.rename(description)
        return Seed.model_validate_json(description.read_text())

    def _made(self, folder: ContainerFolder, blob: Path, record: ContainerRecord) -> Seed:
        """Pack it in a container that gets no record: if this process dies, a reaper removes that."""
        bare = record.model_copy(
            update={
                # no mount may hide what the image has there, and root reads all of it
                "spec": record.spec.model_copy(update={"writable_roots": (), "aliases": {}}),
                "config": record.config.model_copy(update={"tmpfs": {}}),
                "volumes": (),
                "user": 0,
                "labels": None,
            }
        )
        self.host.end(folder)
        folder.files.mkdir(mode=0o700, parents=True)
        control = ControlDirectory(folder.control(), None)
        control.create()
        view = ContainerView(folder, bare, mounted=False)
        try:
            incarnation = self.host.start(view, folder.container, record.image, control)
            sandbox = instance_of(view, control, incarnation)
            # blocking calls run in threads, which have no event loop
            there, users = asyncio.run(_looked_up(sandbox, dict(self._places(record))))
            packed = _packed(sandbox, there, blob, str(record.config)) if there else None
            return Seed(checkpoint=packed, blob=blob, users=users)
        finally:
            self.host.end(folder)


async def _looked_up(
    sandbox: SandboxInstance, places: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, int]]:
    """The `places` that are folders in the image, by their labels in the archive; and the image's users."""
    found = {label: await sandbox.read_file(path, 1) for label, path in places.items()}
    there = {label: path for label, path in places.items() if found[label].error == "is_directory"}
    accounts = (await sandbox.read_file("/etc/passwd", PASSWD_BYTES)).content.decode(errors="replace")
    fields = (line.split(":") for line in accounts.splitlines())
    # isdigit alone is also true of "²"
    numbered = (each for each in fields if len(each) > 3 and each[2].isascii() and each[2].isdigit())
    return there, {each[0]: int(each[2]) for each in numbered}


def _packed(sandbox: SupervisedSandbox, places: Mapping[str, str], to: Path, image: str) -> Checkpoint:
    """Archive `places`. Raises InvalidInput for more than a sandbox can begin with."""
    fields = {"max": str(MAX_CHECKPOINT_BYTES), "timeout_ms": str(PACK_SECONDS * 1000)}
    transfer = ArchiveTransfer(sandbox.control, sandbox.incarnation, secrets.token_hex(16))
    taken = transfer.pack(fields, places, to)
    if taken.word == "too_large":
        raise InvalidInput(
            f"{image} holds {taken.size >> 20} MiB where sandboxes have their workspace and home: "
            "give another workdir or home"
        )
    if taken.word in ("not_found", "permission_denied"):  # a link, or a file system of the kernel's
        raise InvalidInput(
            f"{image}: {' or '.join(places.values())} isn't a folder that can be archived: "
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
