"""The configuration of sandboxes that Apptainer makes."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from clotho.frozen_model import FrozenModel

REFUSED = {
    "network": "the only network that Apptainer has without rights is the host's, with all that listens there; "
    "such sandboxes have none",
    "workdir": "commands begin in /work, which these images know nothing of",
    "user": "commands have a user of their own; where the worker isn't root, they are its own",
    "dockerfile": "build the image where there is an engine, and give it as a .sif file or by its registry",
}
"""Fields that a user of containers may look for, and what there is in their place."""


class ApptainerConfig(FrozenModel):
    """Sandboxes of an image on the worker's host, made by Apptainer or Singularity."""

    kind: Literal["apptainer"] = "apptainer"
    image: str = Field(min_length=1, max_length=400)
    """A .sif file or a folder by its absolute path, or what `apptainer pull` takes; a bare name is Docker's."""

    @property
    def name(self) -> str:
        return self.kind

    def __str__(self) -> str:
        return f"{self.kind} ({self.image})"

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, fields: object) -> object:
        if isinstance(fields, Mapping):
            for name in REFUSED.keys() & fields.keys():
                raise ValueError(f"{name}: {REFUSED[name]}")
        return fields
