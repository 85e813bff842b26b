"""What tests and verifiers' own processes tell each other, as JSON."""

from typing import Any

from pydantic import BaseModel


class Config(BaseModel):
    """An environment's configuration, as verifiers reads it."""

    taskset: dict[str, Any] = {"id": "numbered-tasks"}
    api: dict[str, Any]
    run: str
    order: dict[str, Any]


class Asked(BaseModel):
    """Episodes to ask the server for, all at once."""

    address: str
    model: str
    base_url: str
    """Of the model's server."""
    tasks: list[int]
    """Number of the task of each episode."""
    sampling: dict[str, Any] = {}


class Branch(BaseModel):
    """verifiers' view of a branch."""

    ids: list[int]
    mask: list[bool]
    logprobs: list[float]


class Got(BaseModel):
    """An episode, as the client was given it."""

    task: int
    same_task: bool
    """Its task has the key and the hash of the one that was asked for."""
    ok: bool
    errors: list[str]
    rollout: str | None = None
    reward: float | None = None
    stopped: str | None = None
    branches: list[Branch] = []
