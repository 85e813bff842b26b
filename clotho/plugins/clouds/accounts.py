"""Accounts at clouds that sandboxes are made in: where credentials are, and what may be asked for."""

from pydantic import Field, PositiveFloat

from clotho.frozen_model import FrozenModel

VARIABLE = r"^[A-Z_][A-Z0-9_]{0,127}$"


class ModalAccount(FrozenModel):
    """The workers' account at Modal."""

    token_id_variable: str = Field(default="MODAL_TOKEN_ID", pattern=VARIABLE)
    """Environment variable with the token's id."""
    token_secret_variable: str = Field(default="MODAL_TOKEN_SECRET", pattern=VARIABLE)
    """Environment variable with the token's secret."""
    app: str = Field(default="clotho", pattern=r"^[A-Za-z0-9._-]{1,60}$")
    """The app that sandboxes belong to; it is made where there is none."""
    creations_per_second: PositiveFloat = 5.0
    """Sandboxes that each worker process asks for in a second at most."""
    max_lifetime_seconds: float = Field(default=86_400, ge=60, le=86_400)
    """Seconds after which a sandbox ends whatever happens: a rollout goes on in another, from a checkpoint."""


class E2bAccount(FrozenModel):
    """The workers' account at E2B."""

    api_key_variable: str = Field(default="E2B_API_KEY", pattern=VARIABLE)
    """Environment variable with the key."""
    creations_per_second: PositiveFloat = 1.0
    """Sandboxes that each worker process asks for in a second at most."""
    max_lifetime_seconds: float = Field(default=3_600, ge=60, le=86_400)
    """Seconds that a sandbox may be kept for at most: 3600 on the free plan, 86400 on others."""


class DaytonaAccount(FrozenModel):
    """The workers' account at Daytona."""

    api_key_variable: str = Field(default="DAYTONA_API_KEY", pattern=VARIABLE)
    """Environment variable with the key."""
    target: str | None = None
    """The region of sandboxes. Empty: the account's own."""
    creations_per_second: PositiveFloat = 5.0
    """Sandboxes that each worker process asks for in a second at most."""
    max_disk_mb: int = Field(default=10_240, ge=1024)
    """MiB of disk that the account's plan gives to a sandbox at most."""
