"""Checkpoints of a rollout's sandbox, kept in the store until the rollout is sealed."""

import asyncio
import logging

from clotho import failpoints
from clotho.errors import SandboxUnavailable
from clotho.identifiers.rollout_keys import blob_key
from clotho.journal import Journal
from clotho.sandbox.backend import SandboxInstance
from clotho.sandbox.checkpoints import Checkpoint, NotTaken
from clotho.sandbox.scratch import scratch

log = logging.getLogger("clotho")


async def take_checkpoint(
    journal: Journal,
    rollout: str,
    sandbox: SandboxInstance,
    megabytes: int,
    shell: str | None,
    previous: Checkpoint | None,
) -> Checkpoint | None:
    """Checkpoint the sandbox and keep the blob; None if none could be taken, which fails no rollout."""
    with scratch() as blob:
        try:
            taken = await sandbox.checkpoint(blob, after=shell, previous=previous, max_bytes=megabytes << 20)
        except SandboxUnavailable as error:
            log.warning("no checkpoint: %s", error)
            return None
        if isinstance(taken, NotTaken):
            log.warning("no checkpoint: %s at %d bytes", taken.reason, taken.size)
            return None
        await failpoints.reach("checkpoint.taken", blob_key(rollout, taken.digest))
        if await asyncio.to_thread(blob.exists):
            await journal.write_blob(rollout, taken.digest, await asyncio.to_thread(blob.read_bytes))
    return taken
