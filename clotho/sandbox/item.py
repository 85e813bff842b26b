"""Settings of one item's sandbox, in place of those of its run."""

from typing import Annotated

from pydantic import Field

from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.config import AnyBackendConfig
from clotho.sandbox.healthcheck import Healthcheck
from clotho.templates import Lookup, resolved


class ItemSandbox(FrozenModel):
    """Fields that are None or empty leave the run's as they are."""

    backend: AnyBackendConfig | None = None
    memory_mb: int | None = None
    """MiB."""
    disk_mb: int | None = None
    """MiB."""
    writable_roots: tuple[str, ...] = ()
    """Beside the run's."""
    aliases: dict[str, str] = {}
    """Beside the run's."""
    variables: dict[str, str] = {}
    """Environment variables of commands. Whole values `${VAR}` and `${VAR:-default}` are the workers' own."""
    readable: Annotated[tuple[str, ...] | None, WHERE_SET] = None
    """The workers' variables that `variables` may take; None: any."""
    healthcheck: Healthcheck | None = None
    """A check that has to succeed in a new sandbox before the agent's first command."""
    keep_services: Annotated[bool | None, Field(exclude_if=lambda value: value is None)] = None
    """Whether the agent's background processes stay for verification."""

    def spec(self, run: SandboxSpec, variable: Lookup) -> SandboxSpec:
        """The specification of the item's sandbox; raises InvalidInput for a variable that the workers lack."""
        asked = {
            name: value
            for name in ("backend", "memory_mb", "disk_mb")
            if (value := getattr(self, name)) is not None
        }
        more = {
            "writable_roots": (*run.writable_roots, *self.writable_roots),
            "aliases": {**run.aliases, **self.aliases},
            "variables": {
                **run.variables,
                **resolved(self.variables, "the sandbox's variables", variable, self.readable),
            },
        }
        # validated, not copied: folders of the item may overlap those of the run
        return SandboxSpec.model_validate({**dict(run), **asked, **more})
