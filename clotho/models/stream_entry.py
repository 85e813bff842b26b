"""Tokens of a turn that isn't finished, as the journal keeps them."""

from clotho.frozen_model import FrozenModel
from clotho.models.backend import VersionSpan


class StreamEntry(FrozenModel):
    """Tokens of a turn that arrived before it ended: what it is continued from."""

    offset: int
    """Of the first of `ids` among the turn's."""
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampling_mask: tuple[tuple[int, ...], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    """In a turn's first entry."""
    resumed_at: tuple[int, ...] = ()
    """Where the turn had been resumed until then."""
    versions: tuple[VersionSpan, ...] = ()
    """Of the turn's tokens until then, as far as the server said."""
    known_version: str | None = None
    """What the server's weights were when they were last heard of before these tokens were asked for."""
    trainer_step: int | None = None
    """The trainer's, as known when these tokens were asked for."""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    started: float
    seconds: float
    """Of active sampling until then."""
