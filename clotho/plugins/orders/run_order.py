"""The order of a run, as the server takes it."""

from collections.abc import Mapping

from clotho_client.orders import RunOrder
from pydantic import JsonValue, field_validator

from clotho.errors import InvalidInput
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.plugin_settings import run_settings_here
from clotho.rollouts.agent import trained_agent
from clotho.rollouts.run import RunManifest
from clotho.run_settings import RunSettings
from clotho.runs.request import run_manifest


class CheckedRunOrder(RunOrder):
    """A run as a trainer orders it, with the settings that this server knows."""

    endpoint: Endpoint
    """The model's servers; the last one given counts."""
    rendering: Rendering = Rendering()
    """The tokenizer, renderer and parser of tool calls."""
    # clients send an object: they need not know the settings, which every release of the server may add to
    settings: RunSettings = RunSettings()  # type: ignore[assignment]
    """Sandbox, limits and rewards, as `clotho run` takes them, but for what would run on a host."""

    @field_validator("settings", mode="before")
    @classmethod
    def _no_file(cls, settings: object) -> object:
        prices = settings.get("prices") if isinstance(settings, Mapping) else None
        if isinstance(prices, str) and not prices.startswith("{"):
            raise ValueError("prices: give them as an object: no file of the server is read")
        return settings

    def manifest(self, run: str, defaults: RunSettings) -> RunManifest:
        """The run's manifest. Raises InvalidInput for unknown names and values that don't fit.

        Callers can't choose what runs on a host with a worker's rights: the environment and `defaults` can.
        """
        manifest = self._manifest(run, self.environment_config).with_settings(defaults, self.settings)
        # the environment and the server's own settings may run things on hosts; the caller may only not add to them
        if not _on_hosts(manifest) <= _on_hosts(self._manifest(run, {}).with_settings(defaults)):
            raise InvalidInput(
                "MCP servers with `where: host`, unsafe_local and mounts can't be ordered, since they have a "
                "worker's rights or a host's files: set them in the clotho.yaml of the rollout API, or begin the "
                "run with `clotho run`"
            )
        return manifest

    def _manifest(self, run: str, overrides: dict[str, JsonValue]) -> RunManifest:
        return run_manifest(
            self.environment,
            run,
            self.model,
            agent=trained_agent(self.agent),
            overrides=overrides,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            rendering=None if self.endpoint.inference is Inference.CHAT else self.rendering,
            seed=self.seed,
            group_size=self.group_size,
        )


def _on_hosts(manifest: RunManifest) -> set[str]:
    """The parts of a run that run on hosts, outside of sandboxes, and the hosts' folders that sandboxes see."""
    of_plugins = (each.on_hosts for each in run_settings_here(manifest.tool_settings.plugins))
    unsafe = {"unsafe_local"} if manifest.sandbox.unsafe_local else set()
    return unsafe.union(*of_plugins, (f"mount of {each}" for each in manifest.sandbox.mounts.values()))
