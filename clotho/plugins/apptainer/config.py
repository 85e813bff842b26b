"""The configuration of sandboxes that Apptainer makes."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from clotho.sandbox.config import BackendConfig

REFUSED = {
    "network": "the only network that Apptainer has without rights is the host's, with all that listens there; "
    "such sandboxes have none",
    "workdir": "commands begin in /work, which these images know nothing of",
    "user": "commands have a user of their own; where the worker isn't root, they are its own",
    "dockerfile": "build the image where there is an engine, and give it as a .sif file or by its registry",
}
"""Fields that a user of containers may look for, and what there is in their place."""


class ApptainerConfig(BackendConfig):
    """Sandboxes of an image on the worker's host, made by Apptainer or Singularity."""

    image_fields: ClassVar = ("image",)
    kind: Literal["apptainer"] = "apptainer"
    image: str = Field(min_length=1, max_length=400)
    """A .sif file or a folder by its absolute path, or what `apptainer pull` takes; a bare name is Docker's."""

    def __str__(self) -> str:
        return f"{self.kind} ({self.image})"

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, fields: object) -> object:
        if isinstance(fields, Mapping):
            for name in REFUSED.keys() & fields.keys():
                raise ValueError(f"{name}: {REFUSED[name]}")
        return fields
