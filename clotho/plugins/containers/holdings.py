"""Descriptions of what an engine holds: images that sandboxes begin from, and what backends have made there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LABEL = "clotho.sandbox"
"""On every container and image made here; its value is the identity of the backend that made it."""
LEASE_LABEL = "clotho.lease_seconds"
ROLLOUT_LABEL = "clotho.rollout"
KEPT = "-kept-"
"""In the names of images that checkpoints have, which outlive their containers."""
ENDED = ("created", "configured", "initialized", "exited", "stopped", "dead")
"""States of a container that doesn't run: one that was never started may be about to be."""
OF_THIS_HOST = "localhost/"
"""Prefix of the names of images that no registry has."""


@dataclass(frozen=True)
class Image:
    """The fields of an image that sandboxes depend on."""

    id: str
    architecture: str
    workdir: str
    environment: Mapping[str, str]
    user: str
    """Name or id, with or without a group; empty: root."""
    volumes: Sequence[str]
    """Folders that an engine gives every container anew, unless something is mounted there."""


@dataclass(frozen=True)
class Made:
    """A container or an image that a backend made on this engine."""

    id: str
    name: str
    """A container's name; an image's, without its registry, begins with the one of its container."""
    owner: str
    lease_ends: float
    """Unix seconds at which its first lease ends."""
    ended: bool
    created: float
    """Unix seconds."""
    rollout: str | None

    @classmethod
    def listed(cls, found: Mapping[str, Any]) -> "Made":
        names = found.get("Names") or found.get("RepoTags") or [""]
        labels = found["Labels"]
        return cls(
            id=found["Id"],
            name=names[0].lstrip("/").removeprefix(OF_THIS_HOST),
            owner=labels[LABEL],
            lease_ends=found["Created"] + _seconds(labels.get(LEASE_LABEL)),
            ended=found.get("State", "exited") in ENDED,
            created=found["Created"],
            rollout=labels.get(ROLLOUT_LABEL),
        )


def _seconds(label: str | None) -> float:
    """0 for a label that is missing, or that no backend writes."""
    try:
        return float(label or 0)
    except ValueError:
        return 0.0
