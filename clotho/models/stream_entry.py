"""Journal entries of an unfinished turn's tokens."""

from clotho.frozen_model import FrozenModel
from clotho.models.backend import VersionSpan


class StreamEntry(FrozenModel):
    """Tokens of an unfinished turn, from which it is continued."""

    offset: int
    """Position of the first of `ids` in the turn."""
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampling_mask: tuple[tuple[int, ...], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    """Set in a turn's first entry."""
    resumed_at: tuple[int, ...] = ()
    """Positions at which the turn had been resumed until then."""
    versions: tuple[VersionSpan, ...] = ()
    """Weight versions of the turn's tokens until then, as far as reported."""
    known_version: str | None = None
    """The server's last known weight version before these tokens were requested."""
    trainer_step: int | None = None
    """The trainer's step known when these tokens were requested."""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    started: float
    seconds: float
    """Active sampling time until then."""
