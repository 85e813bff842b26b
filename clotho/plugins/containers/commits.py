"""Checkpoints with the image's own system: what commands have changed of it, committed to an image by the engine.

These images outlive their containers: a sandbox that is lost is restored from them. The two newest of a rollout
are kept, since the last checkpoint may not have been recorded; the reaper removes them when the rollout's last
sandbox has been gone for a while.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from clotho.errors import SandboxUnavailable
from clotho.plugins.containers import layer
from clotho.plugins.containers.engine import Engine
from clotho.plugins.containers.folders import ContainerRecord
from clotho.plugins.containers.holdings import KEPT, LABEL, OF_THIS_HOST, ROLLOUT_LABEL, Made
from clotho.plugins.containers.host import ContainerHost
from clotho.plugins.containers.view import ContainerView, bounds_of, instance_of
from clotho.sandbox.checkpoints import Checkpoint, KeptSystem, NotTaken
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.layout import Layout

KEPT_OF_A_ROLLOUT = 2
KEPT_SECONDS = 3_600.0
"""Seconds after its commit for which an image is kept without a sandbox of its rollout: one may be restored."""
KEPT_OF_OTHERS_SECONDS = 7 * 86_400.0
"""Seconds for which an image is kept whose sandboxes this host may know nothing of."""

log = logging.getLogger("clotho")
Keep = Callable[[KeptSystem | None], KeptSystem | NotTaken | None]


class CommittedSandbox(SupervisedSandbox):
    """A sandbox whose checkpoints have its system: `keep` commits that, given the one of the checkpoint before."""

    def __init__(
        self, control: Control, incarnation: str, layout: Layout, bounds: Bounds, keep: Keep
    ) -> None:
        super().__init__(control, incarnation, layout, bounds)
        self._keep = keep

    def _checkpoint(
        self, to: Path, after: str | None, previous: Checkpoint | None, fields: Mapping[str, str]
    ) -> Checkpoint | NotTaken:
        taken = super()._checkpoint(to, after, previous, fields)
        if isinstance(taken, NotTaken):
            return taken
        # after the archive: a checkpoint that isn't taken leaves no image
        kept = self._keep(None if previous is None else previous.system)
        return kept if isinstance(kept, NotTaken) else taken.model_copy(update={"system": kept})


def agents_instance(
    host: ContainerHost, view: ContainerView, control: Control, incarnation: str
) -> SupervisedSandbox:
    """The agent's instance, with the kind of checkpoints that its configuration asks for."""
    if view.record.config.checkpoint == "folders":
        return instance_of(view, control, incarnation)
    return CommittedSandbox(
        control, incarnation, view.layout(), bounds_of(view), lambda previous: keep(host, view, previous)
    )


def keep(
    host: ContainerHost, view: ContainerView, previous: KeptSystem | None
) -> KeptSystem | NotTaken | None:
    """Commit what has changed of the image's own system; None where it is as in the beginning."""
    folder, record, engine = view.folder, view.record, host.engine
    if not host.changed_outside(view):
        return None if record.kept is None else KeptSystem(image=record.kept, state="")
    now, own = _state(engine.layer(folder.container)), f"{OF_THIS_HOST}{folder.kept_image}"
    # a state is of a layer alone: in another container, over another image, it would be another system
    if previous is not None and now and previous.state == now and previous.image.startswith(own):
        return previous
    if (written := engine.written_bytes(folder.container)) >> 20 > record.config.system_changes_mb:
        return NotTaken(reason="too_large", size=written)
    image = f"{folder.kept_image}{time.time_ns():x}{secrets.token_hex(4)}"
    rollout = rollout_of(record)
    engine.commit(folder.container, image, {**view.ownership, ROLLOUT_LABEL: rollout})
    # of this backend: a rollout of another store, whose workers use the same engine, may have the same name
    ours = [
        each
        for each in engine.left_images()
        if KEPT in each.name and each.rollout == rollout and each.owner == view.ownership[LABEL]
    ]
    # by the time in the name, after the container's, of which a rollout may have had several
    for each in sorted(ours, key=lambda each: each.name.partition(KEPT)[2])[:-KEPT_OF_A_ROLLOUT]:
        remove_unused(engine, each)
    return KeptSystem(image=f"{OF_THIS_HOST}{image}", state=now)


def rollout_of(record: ContainerRecord) -> str:
    return record.lease if record.labels is None else record.labels.rollout


def _state(folder: Path | None) -> str:
    try:
        return "" if folder is None else layer.state(folder)
    except OSError:  # another user's engine, or a file that went meanwhile: committed anew
        return ""


def remove_unused(engine: Engine, image: Made) -> None:
    """Remove an image that no container has, and no other image is made of."""
    try:
        engine.remove_image(image.id, force=False)
    except SandboxUnavailable as error:
        log.info("image %s not removed: %s", image.name, error)


def left_over(images: Sequence[Made], own: str, rollouts: frozenset[str]) -> Iterator[Made]:
    """Images of checkpoints that nobody needs: `rollouts` are those that have sandboxes of the backend `own`."""
    now = time.time()
    for each in images:
        mine = each.owner == own
        if each.rollout in rollouts and mine:
            continue
        if each.created + (KEPT_SECONDS if mine else KEPT_OF_OTHERS_SECONDS) < now:
            yield each
