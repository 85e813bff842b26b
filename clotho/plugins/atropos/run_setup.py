"""Opening the adapter's run: Temporal, the store, and the manifest that may not change between restarts."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atroposlib.envs.server_handling.server_baseline import ReasoningConfig
from atroposlib.envs.server_handling.server_manager import APIServerConfig
from pydantic import JsonValue
from temporalio.client import Client

from clotho.config import Settings, load_settings
from clotho.dataset_config import DatasetConfig
from clotho.environment.loading import load_environment
from clotho.errors import InvalidInput
from clotho.host import host_name
from clotho.journal import Journal
from clotho.journal.open_store import open_store
from clotho.journal.store import MeasuredStore
from clotho.models.backend import Inference, checked_base_url
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.monitoring.endpoint import open_runtime
from clotho.monitoring.metrics import Metrics
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.atropos.metrics import DeliveryMetrics
from clotho.rollouts.agent import trained_agent
from clotho.rollouts.run import RunManifest
from clotho.runs.request import run_manifest, with_checked_tools
from clotho.temporal.connection import connect
from clotho.temporal.namespace import ensure_search_attributes


@dataclass(frozen=True)
class Connections:
    """Temporal and the journal, with their settings and metrics."""

    settings: Settings
    client: Client
    journal: Journal
    metrics: Metrics
    deliveries: DeliveryMetrics


async def open_connections(config: ClothoEnvConfig) -> Connections:
    """Connect to Temporal, open the store and serve metrics, if a port can be had.

    Raises InvalidInput where Temporal or the store can't be used as configured.
    """
    settings = load_settings(config.store, config.temporal)
    labels = {"host": host_name(settings), "roles": "adapter", "run": config.run}
    served = open_runtime(settings.metrics, labels)
    client = await connect(settings.temporal, served.runtime)
    await ensure_search_attributes(client)
    served.log()
    meter = served.runtime.metric_meter
    metrics = Metrics(meter)
    store = await asyncio.to_thread(open_store, settings.store, settings)
    journal = Journal(MeasuredStore(store, metrics.count_request))
    return Connections(settings, client, journal, metrics, DeliveryMetrics(meter))


def served_model(configs: Any, config: ClothoEnvConfig) -> tuple[Endpoint, str]:
    """The model servers, and the model's name there. Raises InvalidInput unless all serve the same model."""
    servers = configs if isinstance(configs, list) else [configs]
    if not servers or not all(isinstance(each, APIServerConfig) and each.base_url for each in servers):
        raise InvalidInput(
            "give a model server: --openai.base_url http://host:8000/v1 --openai.model_name NAME, "
            "or a list of them under openai in a YAML file"
        )
    models = sorted({each.model_name for each in servers})
    if len(models) != 1:
        raise InvalidInput(f"a run samples from one model, and openai names {', '.join(models)}")
    first, *more = dict.fromkeys(checked_base_url(each.base_url) for each in servers)
    endpoint = Endpoint(
        base_url=first,
        more_urls=tuple(more),
        api_key_variable=config.api_key_variable,
        inference=Inference(config.inference),
    )
    return endpoint, models[0]


def with_tokenizer(configs: Any, tokenizer: str) -> Any:
    """Server configurations that name the run's tokenizer: Atropos would load one by the served name."""
    if isinstance(configs, list):
        return [with_tokenizer(config, tokenizer) for config in configs]
    if isinstance(configs, APIServerConfig) and configs.tokenizer_name == "none":
        return configs.model_copy(update={"tokenizer_name": tokenizer})
    return configs


def manifest_of(config: ClothoEnvConfig, model: str) -> RunManifest:
    """The manifest of the training run. Raises InvalidInput for an unknown environment or bad configuration."""
    return _manifest(config, model, config.run, config.training_set, config.group_size)


def evaluation_manifest(config: ClothoEnvConfig, model: str, step: int) -> RunManifest:
    """The manifest of the evaluation on the held-out set at the trainer's step `step`."""
    run = f"{config.run}-eval-{step}"
    held_out = load_environment(config.environment).held_out
    overrides = {**config.training_set, **held_out, **config.held_out_set}
    return _manifest(config, model, run, overrides, config.evaluation_group_size)


def with_run_settings(manifest: RunManifest, settings: Settings, config: ClothoEnvConfig) -> RunManifest:
    """The manifest with the dataset and the run settings of clotho.yaml and of the adapter's configuration."""
    return with_checked_tools(_with_dataset(manifest, settings.dataset).with_settings(settings.run, config))


def _with_dataset(manifest: RunManifest, default: DatasetConfig | None) -> RunManifest:
    """The manifest with the dataset that its environment is given, else `default`, as workers elsewhere find it."""
    config = manifest.environment_config
    if "dataset" not in config:  # an environment of the in-memory design
        return manifest
    given = config["dataset"]
    dataset = default if given is None else DatasetConfig.model_validate(given)
    if dataset is None:
        return manifest
    found = dataset if dataset.digest is not None else dataset.with_absolute_source()
    return manifest.model_copy(
        update={"environment_config": {**config, "dataset": found.model_dump(mode="json")}}
    )


def rendering_of(config: ClothoEnvConfig) -> Rendering | None:
    """The run's rendering; None in chat mode."""
    if Inference(config.inference) is Inference.CHAT:
        return None
    return Rendering(
        tokenizer=config.tokenizer_name,
        renderer=config.renderer,
        tool_call_parser=config.tool_call_parser,
        thinking_mode=config.thinking_mode,
    )


def with_reasoning(manifest: RunManifest, config: ClothoEnvConfig) -> RunManifest:
    """The manifest with Atropos' reasoning fields applied to requests and prompt."""
    asked = ReasoningConfig.from_env_config(config).build_extra_body()
    update: dict[str, object] = {}
    # with a rendering the prompt is rendered here, and the rendering holds the thinking mode
    if asked is not None and manifest.rendering is None:
        # the environment's own fields win
        extra_body = {**asked, **manifest.sampling.extra_body}
        update["sampling"] = manifest.sampling.model_copy(update={"extra_body": extra_body})
    if config.custom_thinking_prompt is not None:
        prompts = (config.custom_thinking_prompt, manifest.system_prompt)
        update["system_prompt"] = "\n\n".join(prompt for prompt in prompts if prompt)
    return manifest.model_copy(update=update)


def _manifest(
    config: ClothoEnvConfig, model: str, run: str, overrides: Mapping[str, JsonValue], group_size: int
) -> RunManifest:
    manifest = run_manifest(
        config.environment,
        run,
        model,
        agent=trained_agent(config.agent),
        overrides=overrides,
        temperature=config.temperature,
        rendering=rendering_of(config),
        seed=config.seed,
        group_size=group_size,
    )
    return with_reasoning(manifest, config)
