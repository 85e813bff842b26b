"""Archives of files that rollouts leave, and where they are in the store."""

import asyncio
import hashlib
import io
import tarfile
from collections.abc import Mapping

import zstandard

from clotho.identifiers.keys import artifact_key
from clotho.journal import Journal
from clotho.rollouts.verification import ArtifactArchive, ArtifactFile


async def keep_artifacts(journal: Journal, run: str, files: Mapping[str, bytes]) -> ArtifactArchive | None:
    """Write an archive of `files` to the store; the same files are kept once in a run."""
    if not files:
        return None
    archive, blob = await asyncio.to_thread(_archived, files)
    await journal.write_bytes(artifact_key(run, archive.sha256), blob)
    return archive


def _archived(files: Mapping[str, bytes]) -> tuple[ArtifactArchive, bytes]:
    """An archive of `files`, which together may be of many megabytes, and its bytes."""
    # sorted, since the archive's digest is its address: the same files give the same bytes
    ordered = sorted(files.items())
    blob = _packed(ordered)
    kept = (
        ArtifactFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in ordered
    )
    return ArtifactArchive(sha256=hashlib.sha256(blob).hexdigest(), files=tuple(kept)), blob


def _packed(files: list[tuple[str, bytes]]) -> bytes:
    """A compressed tar without times and owners: its bytes depend on the files alone."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return zstandard.compress(tar.getvalue(), 3)
