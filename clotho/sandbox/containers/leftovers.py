"""Containers and images that no folder here tells of: their worker ended in between, or its host is gone.

Labels, which the engine keeps, tell whose they are: workers in other mount namespaces may use the same engine, and
have folders of the same paths. What another backend made may be in use as long as its lease could
last. Only what has ended is removed, and an image only where no container has it.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from clotho.errors import SandboxUnavailable
from clotho.sandbox.containers.engine import Engine
from clotho.sandbox.containers.folders import ContainerFolder, identity_of, members
from clotho.sandbox.containers.holdings import Made
from clotho.sandbox.supervised.folders import GRACE_SECONDS

log = logging.getLogger("clotho")


def reap_leftovers(root: Path, engine: Engine) -> Sequence[str]:
    """The names of the containers that were removed."""
    containers, images = engine.containers(), engine.left_images()
    made_here = (*members(root), *ContainerFolder.all_in(root))  # in the order in which they move
    own, known = identity_of(root), tuple(folder.container for folder in made_here)
    left = [each.name for each in _left(containers, own, known)]
    for name in left:
        engine.remove(name)
    for image in _left(images, own, known):
        try:
            engine.remove_image(image.id, force=False)
        except SandboxUnavailable as error:  # a container has it
            log.info("image %s not removed: %s", image.name, error)
    return left


def _left(made: Sequence[Made], own: str, known: Sequence[str]) -> Iterator[Made]:
    for each in made:
        if each.owner == own:
            left = not any(f"{each.name}-".startswith(f"{name}-") for name in known)
        else:
            left = each.lease_ends + GRACE_SECONDS < time.time()
        if left and each.ended:
            yield each
