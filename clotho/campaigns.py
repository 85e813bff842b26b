"""Starting a run's campaign, and finding one that runs."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import JsonValue
from temporalio.client import Client, WorkflowHandle
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from clotho.entries.items import Item
from clotho.entries.run import (
    CheckpointPolicy,
    Endpoint,
    OnRewardError,
    Rendering,
    RunManifest,
    ToolSelection,
    difference,
)
from clotho.environment import EnvironmentConfig, make_environment
from clotho.errors import InvalidInput
from clotho.identifiers import campaign_id, checked_run_name, order_prefix
from clotho.inference.base import Sampling
from clotho.journal import Journal
from clotho.records.base import Record
from clotho.records.campaign import CampaignProgress, CampaignRequest
from clotho.records.group import RepairBounds
from clotho.records.outcome import Limits
from clotho.records.stations import Stations
from clotho.runs import open_run, write_items
from clotho.sandbox.base import SandboxSpec
from clotho.search_attributes import ENVIRONMENT, RUN
from clotho.temporal import ensure_search_attributes, is_running
from clotho.toolsets.base import ToolSettings
from clotho.toolsets.registry import Registry
from clotho.toolsets.resolution import resolve

WORKFLOW = "Campaign"


class RunOrder(Record):
    """A run as a user asks for it."""

    manifest: RunManifest
    endpoint: Endpoint
    groups: int
    max_open_groups: int
    items: tuple[Item, ...] | None = None
    """None: the environment's own."""
    stations: Stations = Stations()
    repairs: RepairBounds = RepairBounds()
    stop_after_failures: int = 8
    """Rollouts that fail in a row for the same reason before the run pauses itself."""


CampaignHandle = WorkflowHandle[object, CampaignProgress]


def run_manifest(
    environment: str,
    run: str,
    model_name: str,
    *,
    overrides: Mapping[str, JsonValue] = MappingProxyType({}),
    temperature: float | None = None,
    max_tokens: int | None = None,
    extra_body: dict[str, JsonValue] | None = None,
    standard_sampling: bool = False,
    rendering: Rendering | None = None,
    seed: int = 0,
    group_size: int = 4,
    unsafe_local: bool = False,
    on_reward_error: OnRewardError = OnRewardError.FAIL,
    checkpoints: CheckpointPolicy = CheckpointPolicy.EVERY_TURN,
    keep_diverged: bool = True,
) -> RunManifest:
    """What the environment asks for, with what the user overrides; token-exact with a `rendering`.

    Raises InvalidInput for unknown names, and for sampling parameters left to the server in token-exact mode.
    """
    asked = make_environment(environment, overrides).config
    sampling = Sampling(
        temperature=asked.agent_temperature if temperature is None else temperature,
        max_tokens=max_tokens or asked.max_token_length,
        extra_body=asked.extra_body if extra_body is None else extra_body,
    )
    if standard_sampling and rendering is not None:
        raise InvalidInput(
            "token-exact inference sends all sampling parameters: leave --standard-sampling out"
        )
    if standard_sampling:
        sampling = sampling.model_copy(update={"top_k": None, "min_p": None, "repetition_penalty": None})
    manifest = RunManifest(
        run=checked_run_name(run),
        environment=environment,
        environment_config=asked.model_dump(mode="json"),
        model=model_name,
        sampling=sampling,
        rendering=rendering,
        seed=seed,
        system_prompt=asked.system_prompt,
        selection=tool_selection(asked),
        tool_settings=ToolSettings(terminal_timeout=asked.terminal_timeout),
        sandbox=SandboxSpec(unsafe_local=unsafe_local),
        on_reward_error=on_reward_error,
        checkpoints=checkpoints,
        limits=Limits(
            max_turns=asked.max_agent_turns,
            max_sampled_tokens=asked.max_sampled_tokens,
            max_active_seconds=asked.max_active_seconds,
            keep_diverged=keep_diverged,
        ),
        group_size=group_size,
    )
    return manifest.named(model_name) if model_name else manifest


def tool_selection(asked: EnvironmentConfig) -> ToolSelection:
    """What the environment asks for; raises InvalidInput for names that nobody knows."""
    selection = ToolSelection(
        enabled=asked.enabled_toolsets, disabled=asked.disabled_toolsets, distribution=asked.distribution
    )
    resolve(Registry.discover(), selection.enabled, selection.disabled, selection.distribution)
    return selection


async def start_campaign(client: Client, journal: Journal, order: RunOrder) -> CampaignHandle:
    """Start the run's campaign, attach to it if it is running, or start it again to do what is left.

    Raises InvalidInput if the run exists with other settings or items, or is running by another order.
    """
    manifest = order.manifest
    await ensure_search_attributes(client)
    await open_run(journal, manifest, order.endpoint)
    groups = order.groups
    if order.items is not None:
        await write_items(journal, manifest.run, order.items)
        groups = min(groups, len(order.items))
    request = CampaignRequest(
        run=manifest.run,
        environment=manifest.environment,
        groups=groups,
        group_size=manifest.group_size,
        limits=manifest.limits,
        stations=order.stations,
        max_open_groups=order.max_open_groups,
        repairs=order.repairs,
        stop_after_failures=order.stop_after_failures,
    )
    ordered = await journal.latest(order_prefix(manifest.run), CampaignRequest)
    if ordered != request:
        if ordered is not None and await is_running(client, campaign_id(manifest.run)):
            raise InvalidInput(
                f"run {manifest.run} is running, as it was ordered ({difference(request, ordered)}); "
                "give the same again, or wait for its end or cancel it first"
            )
        await journal.append(order_prefix(manifest.run), request)
    return await start_requested(client, request)


async def read_order(journal: Journal, run: str) -> CampaignRequest:
    """What the run's campaign was last asked for; raises InvalidInput for a run that was never started."""
    request = await journal.latest(order_prefix(run), CampaignRequest)
    if request is None:
        raise InvalidInput(f"run {run!r} was never started in {journal.store_identity}")
    return request


async def start_requested(client: Client, request: CampaignRequest) -> CampaignHandle:
    """Start a campaign, or attach to it if it is running."""
    return await client.start_workflow(
        WORKFLOW,
        request,
        id=campaign_id(request.run),
        task_queue=request.stations.campaigns,
        result_type=CampaignProgress,
        # Whatever is finished is found in the journal, so starting a finished campaign again costs nothing.
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=identify(request.run, request.environment),
    )


def identify(run: str, environment: str) -> TypedSearchAttributes:
    """The search attributes of what is started from outside, as its parent would set them."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(RUN), run),
            SearchAttributePair(SearchAttributeKey.for_keyword(ENVIRONMENT), environment),
        ]
    )
