"""`clotho run`: start a run, or resume the one of that name, and follow it."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import JsonValue, ValidationError
from rich.console import Console
from temporalio.client import Client

from clotho.cli.follow import follow
from clotho.cli.interruption import EXIT_STATUS, Interrupted, Interruption
from clotho.cli.items import read_items
from clotho.cli.options import Address, Store, open_journal
from clotho.cli.served_model import only_model
from clotho.cli.terminal import again, make_console, one_line
from clotho.config import Settings, load_settings
from clotho.entries.run import CheckpointPolicy, Endpoint, OnRewardError, Rendering, RunManifest
from clotho.errors import InvalidInput
from clotho.identifiers import campaign_id, manifest_key
from clotho.inference.base import Inference, checked_base_url
from clotho.journal import Journal
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.order import RunOrder, run_manifest
from clotho.temporal import connect, workflow_link


def command(
    environment: Annotated[
        str, typer.Argument(help="A module in environments/, or module:Class.", metavar="ENV")
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Base URL of an OpenAI-compatible server, such as http://host:8000/v1.", metavar="URL"
        ),
    ],
    run: Annotated[str, typer.Option(help="The run's name; giving it again resumes it.", metavar="NAME")],
    model_name: Annotated[
        str | None,
        typer.Option(
            help="The model's name, as the server knows it.", show_default="the one it lists", metavar="NAME"
        ),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable that holds the key, in the workers.", metavar="NAME"),
    ] = None,
    inference: Annotated[
        Inference,
        typer.Option(
            help="How turns are sampled. Only tokens are training data: vLLM and SGLang give them. "
            "tokens: whichever way the server has."
        ),
    ] = Inference.CHAT,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="With tokens: a name on the Hugging Face hub, or a folder where models are called from.",
            show_default="the model's name",
            metavar="NAME",
        ),
    ] = None,
    renderer: Annotated[
        str | None,
        typer.Option(
            help="With tokens: what renders the model's chat format; needed for a checkpoint in a folder.",
            show_default="the one made for the tokenizer's name, else its chat template",
            metavar="NAME",
        ),
    ] = None,
    tool_call_parser: Annotated[
        str | None,
        typer.Option(
            help="With tokens: what reads tool calls.", show_default="the renderer's own", metavar="NAME"
        ),
    ] = None,
    thinking: Annotated[
        bool, typer.Option(help="With tokens: keep think blocks in the history that later turns see.")
    ] = False,
    groups: Annotated[int, typer.Option(help="How many items to roll out.", min=1)] = 8,
    group_size: Annotated[int, typer.Option(help="Rollouts of each item.", min=1)] = 4,
    max_open_groups: Annotated[int, typer.Option(help="How many groups run at once.", min=1)] = 16,
    items: Annotated[
        Path | None,
        typer.Option(
            help="JSONL file of items, in place of the environment's own.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--set", help="A field of the environment's configuration.", metavar="NAME=JSON"),
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Overrides the environment's.", min=0)] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens that one turn may sample.", min=1)] = None,
    extra_body: Annotated[
        str | None, typer.Option(help="Further fields of each model request.", metavar="JSON")
    ] = None,
    standard_sampling: Annotated[
        bool,
        typer.Option(help="Send only OpenAI's own sampling fields: no top_k, min_p, repetition_penalty."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seeds of all rollouts derive from it.")] = 0,
    checkpoints: Annotated[
        CheckpointPolicy, typer.Option(help="After which calls sandboxes are checkpointed.")
    ] = CheckpointPolicy.EVERY_TURN,
    keep_diverged: Annotated[
        bool,
        typer.Option(help="Go on in a restored sandbox in which replayed commands came to something else."),
    ] = True,
    on_reward_error: Annotated[
        OnRewardError,
        typer.Option(help="What becomes of a rollout whose verifier fails: no reward, or a flagged 0."),
    ] = OnRewardError.FAIL,
    unsafe_local: Annotated[
        bool, typer.Option(help="Run commands on this machine without isolation where it can't be proved.")
    ] = False,
    detach: Annotated[bool, typer.Option(help="Start it and return.")] = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Start a run of ENV, or resume the one of that name, and follow it.

    Ctrl-C stops following; the run goes on.
    """
    try:
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
            unsafe_local=unsafe_local,
            on_reward_error=on_reward_error,
            checkpoints=checkpoints,
            keep_diverged=keep_diverged,
        )
    except ValidationError as error:
        raise InvalidInput("; ".join(fault["msg"] for fault in error.errors())) from error
    order = RunOrder(
        manifest=manifest,
        endpoint=Endpoint(
            base_url=checked_base_url(model), api_key_variable=api_key_env, inference=inference
        ),
        groups=groups,
        max_open_groups=max_open_groups,
        items=read_items(items) if items else None,
    )
    settings = load_settings(store=store, temporal={"address": temporal} if temporal else None)
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
