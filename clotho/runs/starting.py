"""Starting a run, for the command line and the Python API."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from clotho.config import read_settings_file
from clotho.environment.code import Code
from clotho.identifiers.ids import campaign_id
from clotho.identifiers.keys import manifest_key
from clotho.journal import Journal
from clotho.models.listed_models import only_model
from clotho.plugin import load, plugins
from clotho.processes.liveness import changed_settings
from clotho.rollouts.run import RunManifest
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.manifest import has_begun
from clotho.runs.operations import Operations
from clotho.runs.request import RunRequest
from clotho.runs.targets import Target
from clotho.temporal.states import is_running

SETTINGS_NAMED = 6


@dataclass(frozen=True)
class Started:
    order: RunRequest
    """The request, with the model's name."""
    handle: CampaignHandle
    changed: list[Path]
    """Source files of the environment that changed since the run took its code."""
    was_running: bool
    """Whether it ran before, and so keeps the code that it has."""

    @property
    def kept_by(self) -> str | None:
        """The run, where it keeps the code that it has."""
        return self.order.manifest.run if self.was_running else None


async def start(client: Client, journal: Journal, order: RunRequest, code: Code | None = None) -> Started:
    """Start the run, or attach to it. Its environment is `code`, if given, else what workers have on disk."""
    named, run = await with_model_name(journal, order), order.manifest.run
    # both before the start: it takes the code as it is now, and after it the run runs in any case
    changed = await _changed_sources(journal, client, run)
    running = await is_running(client, campaign_id(run))
    return Started(named, await start_campaign(client, journal, named, code), changed, running)


async def messages_before_start(journal: Journal, manifest: RunManifest) -> list[str]:
    """Messages to show before the run starts: plugins' about its environment, and one about workers' settings."""
    hooks = [load(plugin.notice) for plugin in plugins().values() if plugin.notice is not None]
    messages = [
        await asyncio.to_thread(hook, manifest.environment, manifest.environment_config) for hook in hooks
    ]
    messages.append(await settings_notice(journal))
    return [message for message in messages if message is not None]


async def settings_notice(journal: Journal) -> str | None:
    """A sentence where clotho.yaml has changed since the workers read it; None where it hasn't."""
    if not (changed := await changed_settings(journal, await asyncio.to_thread(read_settings_file))):
        return None
    names = ", ".join(changed[:SETTINGS_NAMED]) + (", …" if len(changed) > SETTINGS_NAMED else "")
    return f"the workers have older settings than clotho.yaml ({names}): start them again"


async def with_model_name(journal: Journal, order: RunRequest) -> RunRequest:
    """The request with a model name: by default the run's so far, else the one model's that the server lists."""
    manifest = order.manifest
    name = manifest.model
    if not name:
        begun = await journal.read(manifest_key(manifest.run), RunManifest)
        kept = begun is not None and await has_begun(journal, manifest.run)
        assert order.endpoint is not None  # where no model acts, its name is the agent's
        name = begun.model if begun is not None and kept else await only_model(order.endpoint)
    return order.model_copy(update={"manifest": manifest.named(name)})


async def _changed_sources(journal: Journal, client: Client, run: str) -> list[Path]:
    # not kept in memory: until the run has items, its manifest may be replaced
    if await journal.read_current(manifest_key(run), RunManifest) is None:
        return []
    return await Operations(journal, client).changed_sources(Target(run))
