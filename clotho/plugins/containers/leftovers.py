"""Containers and images that no folder here tells of: their worker ended in between, or its host is gone.

Labels, which the engine keeps, tell whose they are: workers in other mount namespaces may use the same engine, and
have folders of the same paths. What another backend made may be in use as long as its lease could
last. Only what has ended is removed, and an image only where no container has it.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from clotho.plugins.containers.commits import left_over, remove_unused, rollout_of
from clotho.plugins.containers.engine import Engine
from clotho.plugins.containers.folders import ContainerFolder, members
from clotho.plugins.containers.holdings import KEPT, Made
from clotho.sandbox.reaper import going_on
from clotho.sandbox.supervised.folders import GRACE_SECONDS, identity_of


def reap_leftovers(root: Path, engine: Engine) -> Sequence[str]:
    """Remove them; returns the names of the removed containers.

    The engine is asked first: whatever it lists had a folder before. Folders are looked for in the order in which
    they move, so that none is missed: members of the pool are made among the sandboxes, kept in the pool, and
    claimed back.
    """
    containers, images = engine.containers(), engine.left_images()
    looks = (ContainerFolder.all_in, members, ContainerFolder.all_in)
    own, known = identity_of(root), tuple(folder.container for look in looks for folder in look(root))
    left = [each.name for each in _left(containers, own, known) if _remove_container(each, engine)]
    kept = [each for each in images if KEPT in each.name]
    for image in _left([each for each in images if each not in kept], own, known):
        remove_unused(engine, image)
    for image in left_over(kept, own, _rollouts(root)):
        remove_unused(engine, image)
    return left


def _rollouts(root: Path) -> frozenset[str]:
    """The rollouts that have a sandbox here."""
    records = (folder.readable_record() for folder in ContainerFolder.all_in(root))
    return frozenset(rollout_of(record) for record in records if record is not None)


def _remove_container(container: Made, engine: Engine) -> bool:
    """Remove a container by its id: another may have its name by now."""
    with going_on(f"container {container.name} not removed"):  # such as one that runs after all
        engine.remove(container.id, force=False)
        return True
    return False


def _left(made: Sequence[Made], own: str, known: Sequence[str]) -> Iterator[Made]:
    for each in made:
        if each.owner == own:
            # the names of verifiers' containers and of images begin with that of the agent's container
            left = not any(f"{each.name}-".startswith(f"{name}-") for name in known)
        else:
            left = each.lease_ends + GRACE_SECONDS < time.time()
        if left and each.ended:
            yield each
