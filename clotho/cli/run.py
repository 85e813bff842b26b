"""`clotho run`: start a run, or resume the one of that name, and follow it."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer
from pydantic import JsonValue, ValidationError
from rich.console import Console
from temporalio.client import Client

from clotho.cli import run_options as option
from clotho.cli.follow import follow
from clotho.cli.interruption import EXIT_STATUS, Interrupted, Interruption
from clotho.cli.items import read_items
from clotho.cli.options import Address, Store, open_journal
from clotho.cli.served_model import only_model
from clotho.cli.terminal import again, make_console, one_line
from clotho.config import Settings, checked_variable_name, load_settings
from clotho.entries.run import Endpoint, Rendering, RunManifest
from clotho.errors import InvalidInput
from clotho.identifiers import campaign_id, manifest_key
from clotho.inference.base import Inference, checked_base_url
from clotho.journal import Journal
from clotho.records.run_settings import RunSettings
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.order import RunOrder, run_manifest
from clotho.temporal.connection import connect
from clotho.temporal.links import workflow_link


def command(
    context: typer.Context,
    environment: option.Environment,
    model: option.Model,
    run: option.Run,
    model_name: option.ModelName = None,
    api_key_env: option.KeyVariable = None,
    inference: option.Mode = Inference.CHAT,
    tokenizer: option.Tokenizer = None,
    renderer: option.Renderer = None,
    tool_call_parser: option.ToolCallParser = None,
    thinking: option.Thinking = False,
    groups: option.Groups = 8,
    group_size: option.GroupSize = 4,
    max_open_groups: option.MaxOpenGroups = 16,
    items: option.Items = None,
    config: option.Overrides = None,
    temperature: option.Temperature = None,
    max_tokens: option.MaxTokens = None,
    extra_body: option.ExtraBody = None,
    standard_sampling: option.StandardSampling = False,
    seed: option.Seed = 0,
    checkpoints: option.Checkpoints = None,
    checkpoint_mb: option.CheckpointSize = None,
    keep_diverged: option.KeepDiverged = None,
    on_reward_error: option.RewardError = None,
    memory_mb: option.Memory = None,
    disk_mb: option.Disk = None,
    max_processes: option.Processes = None,
    limits: option.Bounds = None,
    expose_usr_local: option.UsrLocal = None,
    unsafe_local: option.UnsafeLocal = None,
    max_result_chars: option.ResultChars = None,
    max_turn_chars: option.TurnChars = None,
    preview_chars: option.PreviewChars = None,
    result_chars: option.ToolResultChars = None,
    redact: option.Redact = None,
    detach: option.Detach = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Start a run of ENV, or resume the one of that name, and follow it.

    Ctrl-C stops following; the run goes on.
    """
    settings = load_settings(store, temporal)
    asked = {name: context.params[name] for name in RunSettings.model_fields}
    manifest = run_manifest(
        environment,
        run,
        model_name or "",
        overrides=parse_overrides(config or []),
        temperature=temperature,
        max_tokens=max_tokens,
        extra_body=parse_object("--extra-body", extra_body) if extra_body else None,
        standard_sampling=standard_sampling,
        rendering=asked_rendering(inference, tokenizer, renderer, tool_call_parser, thinking),
        seed=seed,
        group_size=group_size,
    ).with_settings(settings.run, checked_settings(asked))
    url = checked_base_url(model)
    if api_key_env is not None:
        checked_variable_name(api_key_env)
    order = RunOrder(
        manifest=manifest,
        endpoint=Endpoint(base_url=url, api_key_variable=api_key_env, inference=inference),
        groups=groups,
        max_open_groups=max_open_groups,
        items=read_items(items) if items else None,
    )
    asyncio.run(Following(settings, make_console()).run(order, detach))


@dataclass(frozen=True)
class Following:
    """One `clotho run`: the run is started, then watched as long as the user likes."""

    settings: Settings
    console: Console

    async def run(self, order: RunOrder, detach: bool) -> None:
        """Exits with 130 when interrupted."""
        interruption, run = Interruption(), order.manifest.run
        started = False
        try:
            journal, client, handle = await interruption.ends(self.start(order))
            started = True
            link = workflow_link(self.settings.temporal.ui, client.namespace, campaign_id(run))
            self.say(f"run {run}: {link}")
            if detach:
                self.say(f"it goes on by itself; to see how: {again(f'status {run}', self.settings)}")
            else:
                await interruption.ends(follow(self.console, client, handle, journal, run))
        except Interrupted:
            if started:
                self.say(
                    f"the run goes on; give the same command to follow it again, or see: "
                    f"{again(f'status {run}', self.settings)}"
                )
            raise typer.Exit(EXIT_STATUS) from None

    async def start(self, order: RunOrder) -> tuple[Journal, Client, CampaignHandle]:
        journal = await open_journal(self.settings)
        named = await with_model_name(journal, order)
        client = await connect(self.settings.temporal)
        return journal, client, await start_campaign(client, journal, named)

    def say(self, line: str) -> None:
        one_line(self.console, line)


async def with_model_name(journal: Journal, order: RunOrder) -> RunOrder:
    """Where none was given: the name that the run has had so far, else of the one model that the server lists."""
    manifest = order.manifest
    name = manifest.model
    if not name:
        begun = await journal.read(manifest_key(manifest.run), RunManifest)
        name = begun.model if begun else await only_model(order.endpoint)
    return order.model_copy(update={"manifest": manifest.named(name)})


def checked_settings(asked: dict[str, Any]) -> RunSettings:
    """Raises InvalidInput that names the flag at fault."""
    try:
        return RunSettings(**asked)
    except ValidationError as error:
        faults = [f"--{str(each['loc'][0]).replace('_', '-')}: {each['msg']}" for each in error.errors()]
        raise InvalidInput("; ".join(faults)) from error


def asked_rendering(
    inference: Inference, tokenizer: str | None, renderer: str | None, parser: str | None, thinking: bool
) -> Rendering | None:
    """None in chat mode; raises InvalidInput for options that say nothing there."""
    if inference is not Inference.CHAT:
        return Rendering(
            tokenizer=tokenizer or "", renderer=renderer, tool_call_parser=parser, thinking_mode=thinking
        )
    given = {"tokenizer": tokenizer, "renderer": renderer, "tool-call-parser": parser, "thinking": thinking}
    if said := [f"--{name}" for name, value in given.items() if value]:
        raise InvalidInput(f"{', '.join(said)}: the server renders in chat mode; give --inference tokens")
    return None


def parse_overrides(assignments: Sequence[str]) -> dict[str, JsonValue]:
    """`name=value` with a value in JSON, or else taken as text."""
    values: dict[str, JsonValue] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InvalidInput(f"--set {assignment}: write NAME=VALUE")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def parse_object(option: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{option} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{option} must be a JSON object")
    return value
