"""Registrations of trainers and environments: atroposlib's own requests, with bounds on their numbers."""

from typing import Annotated

from atroposlib.api import server
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clotho.plugins.atropos.api.sent import refusal

MOST_ROWS = 4_096
"""Rows of a group. Packing groups takes time and memory with their size."""
Name = Annotated[str, Field(max_length=1_024)]
Tokens = Annotated[int, Field(ge=1, lt=2**31)]
Steps = Annotated[int, Field(ge=-1, lt=2**53)]
"""-1 stands for none."""


class _Bounded(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class Trainer(_Bounded, server.Registration):  # type: ignore[misc]
    wandb_group: Name
    wandb_project: Name
    batch_size: Annotated[int, Field(ge=1, le=65_536)]
    max_token_len: Tokens
    checkpoint_dir: Name
    save_checkpoint_interval: Steps
    starting_step: Annotated[int, Field(ge=0, lt=2**53)]
    num_steps: Steps


class Environment(_Bounded, server.RegisterEnv):  # type: ignore[misc]
    max_token_length: Tokens
    desired_name: Name
    weight: Annotated[float, Field(ge=1e-9, le=1e9)]
    group_size: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    min_batch_allocation: Annotated[float, Field(ge=0, le=1)] | None = None


class EnvironmentNumber(_Bounded, server.EnvIdentifier):  # type: ignore[misc]
    env_id: Annotated[int, Field(ge=0, lt=2**31)]


RegistrationRequest = Trainer | Environment | EnvironmentNumber
BODIES: dict[str, type[RegistrationRequest]] = {
    "/register": Trainer,
    "/register-env": Environment,
    "/disconnect-env": EnvironmentNumber,
    "/status-env": EnvironmentNumber,
}


def read_request(path: str, body: bytes) -> RegistrationRequest:
    """The request that a body holds. Raises Refused."""
    try:
        return BODIES[path].model_validate_json(body)
    except ValidationError as error:
        raise refusal(error) from error
