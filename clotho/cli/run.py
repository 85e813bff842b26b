"""`clotho run`: start a run, or resume the one of that name, and follow it."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import JsonValue, TypeAdapter, ValidationError
from rich.console import Console

from clotho.campaigns import RunOrder, run_manifest, start_campaign
from clotho.cli.follow import follow
from clotho.cli.options import Address, Store, open_journal
from clotho.config import load_settings
from clotho.entries import Endpoint, Item
from clotho.errors import InvalidInput
from clotho.temporal import connect


def command(
    environment: Annotated[
        str, typer.Argument(help="A module in environments/, or module:Class.", metavar="ENV")
    ],
    model: Annotated[
        str, typer.Option(help="Base URL of an OpenAI-compatible server, such as http://host:8000/v1.")
    ],
    run: Annotated[str, typer.Option(help="The run's name; giving it again resumes it.")],
    model_name: Annotated[str, typer.Option(help="The model's name, as the server knows it.")] = "default",
    api_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable that holds the key, in the workers.", metavar="NAME"),
    ] = None,
    groups: Annotated[int, typer.Option(help="How many items to roll out.", min=1)] = 8,
    group_size: Annotated[int, typer.Option(help="Rollouts of each item.", min=1)] = 4,
    max_open_groups: Annotated[int, typer.Option(help="How many groups run at once.", min=1)] = 16,
    items: Annotated[
        Path | None, typer.Option(help="JSONL file of items, in place of the environment's own.", exists=True)
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
    manifest = run_manifest(
        environment,
        run,
        model_name,
        overrides=parse_overrides(config or []),
        temperature=temperature,
        max_tokens=max_tokens,
        extra_body=parse_object("--extra-body", extra_body) if extra_body else None,
        standard_sampling=standard_sampling,
        seed=seed,
        group_size=group_size,
        unsafe_local=unsafe_local,
    )
    order = RunOrder(
        manifest=manifest,
        endpoint=Endpoint(base_url=model, api_key_variable=api_key_env),
        groups=groups,
        max_open_groups=max_open_groups,
        items=read_items(items) if items else None,
    )
    settings = load_settings(store=store, temporal={"address": temporal} if temporal else None)

    async def start_and_follow() -> None:
        client = await connect(settings.temporal)
        journal = open_journal(settings)
        handle = await start_campaign(client, journal, order)
        console = Console()
        console.print(f"run [bold]{run}[/]: {settings.temporal.ui}")
        if not detach:
            await follow(console, handle, journal, run)

    asyncio.run(start_and_follow())


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


def read_items(path: Path) -> tuple[Item, ...]:
    """One JSON object a line; raises InvalidInput that names the line."""
    item_type = TypeAdapter(Item)
    items = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            items.append(item_type.validate_json(line))
        except ValidationError as error:
            raise InvalidInput(f"{path}:{number}: not a JSON object: {error.errors()[0]['msg']}") from error
    if not items:
        raise InvalidInput(f"{path} holds no items")
    return tuple(items)
