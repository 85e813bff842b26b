"""The options of `clotho run`, `clotho try` and `clotho eval`, and their values."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import typer
import typer.core
from pydantic import JsonValue

from clotho.cli.assignments import (
    checked_settings,
    flag_of,
    parse_object,
    parse_overrides,
    parse_plugin_fields,
)
from clotho.cli.dataset_options import DatasetOptions
from clotho.config import Settings, checked_variable_name
from clotho.dataset_config import DatasetConfig
from clotho.environment.named import named_environment
from clotho.errors import InvalidInput
from clotho.identifiers.ids import checked_run_name
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint, parsed_servers
from clotho.models.rendering.rendering import Rendering
from clotho.plugin import plugins
from clotho.rollouts.agent import Agent, AgentKind, agent_kind
from clotho.rollouts.run import RunManifest
from clotho.run_settings import Acquire, CheckpointPolicy, OnRewardError, RunSettings
from clotho.runs.request import run_manifest, with_checked_tools

MODEL, SAMPLING, LIMITS, BUDGETS = "Model", "Sampling", "Rewards and tool results", "Budgets"
SANDBOX, SWITCHES = "Sandbox", "Sandbox switches"

Environment = Annotated[
    str,
    typer.Argument(help="A module in environments/, module:Class, or tasks:SOURCE.", metavar="ENV"),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Base URL of an OpenAI-compatible server, such as http://host:8000/v1; several of the same model "
        "with commas between, each with =WEIGHT if they are to have different shares.",
        metavar="URL",
        rich_help_panel=MODEL,
    ),
]
Run = Annotated[str, typer.Option(help="The run's name; giving it again resumes it.", metavar="NAME")]
Groups = Annotated[int, typer.Option(help="Number of items to roll out.", min=1, metavar="N")]
ChosenGroups = Annotated[
    int | None,
    typer.Option(
        help="Number of items to roll out; more for a run that is there add items to it.",
        min=1,
        metavar="N",
        show_default="those of --ids or --sample, else 8",
    ),
]
DEFAULT_GROUPS = 8
GroupSize = Annotated[int, typer.Option(help="Rollouts of each item.", min=1, metavar="N")]
MaxOpenGroups = Annotated[
    int, typer.Option(help="Number of groups that run at once.", min=1, max=1_000, metavar="N")
]
Items = Annotated[
    Path | None,
    typer.Option(
        help="JSONL file of items, in place of the environment's own.",
        exists=True,
        dir_okay=False,
        readable=True,
        metavar="FILE",
    ),
]
Priority = Annotated[
    int | None,
    typer.Option(
        help="Order among runs whose tasks wait for the same workers, and share of a model server: 1 comes first.",
        min=1,
        max=5,
        metavar="N",
        show_default="3",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Say what would run, and estimate its tokens, time and cost from three rollouts that aren't kept.",
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Start the run and return at once.")]


def option(
    panel: str, text: str, metavar: str | None = None, *names: str, shown: str | bool = True, **more: Any
) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel, show_default=shown, **more)


def asked(panel: str, name: str, metavar: str | None = None, *flags: str) -> Any:
    """The option for a field of RunSettings, whose values it checks; clotho.yaml may have it under `run`."""
    return option(panel, RunSettings.model_fields[name].description or "", metavar, *flags, shown=False)


@dataclass(frozen=True)
class RunOptions(DatasetOptions):
    """Options of rollouts, for every command that starts some."""

    model_name: Annotated[
        str | None,
        option(MODEL, "The model's name, as the server knows it.", "NAME", shown="the one it lists"),
    ] = None
    agent: Annotated[
        str,
        option(
            MODEL,
            "The agent: model; a program with a loop of its own, which `clotho agents` lists; oracle, which runs "
            "the environment's solution; nop, which does nothing; empty, huge and fifo, which spoil the files that "
            "the solution wrote; or replay, which repeats the turns of another run.",
            "AGENT",
        ),
    ] = AgentKind.MODEL.value
    replays: Annotated[
        str | None, option(MODEL, "With --agent replay: the run whose turns are repeated.", "RUN")
    ] = None
    api_key_env: Annotated[
        str | None,
        option(MODEL, "Environment variable of the workers that holds the server's API key.", "NAME"),
    ] = None
    inference: Annotated[
        Inference,
        option(
            MODEL,
            "The endpoint that samples turns: chat, or one of vLLM or SGLang that returns the tokens needed for "
            "training. tokens: the one that the server has; else vllm-generate, vllm-completions or sglang.",
            "MODE",
        ),
    ] = Inference.CHAT
    tokenizer: Annotated[
        str | None,
        option(
            MODEL,
            "With tokens: a name on the Hugging Face hub, or a folder where models are called from.",
            "NAME",
            shown="the model's name",
        ),
    ] = None
    renderer: Annotated[
        str | None,
        option(
            MODEL,
            "With tokens: the renderer of the model's chat format; needed for a checkpoint in a folder.",
            "NAME",
            shown="the one made for the tokenizer's name, else its chat template",
        ),
    ] = None
    tool_call_parser: Annotated[
        str | None,
        option(
            MODEL,
            "With tokens: the parser of tool calls, by vLLM's name or as module:Class; `renderer`: the "
            "hand-coded renderer's own.",
            "NAME",
            shown="that of the model's family, else the renderer",
        ),
    ] = None
    thinking: Annotated[
        bool,
        option(
            MODEL,
            "With tokens: keep think blocks in the history that later turns see.",
            None,
            "--thinking",
        ),
    ] = False
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A field of the environment's configuration, or of a plugin's settings: "
            "browser.allow='[\"example.org\"]'.",
            metavar="NAME=JSON",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        option(SAMPLING, "Sampling temperature, in place of the environment's.", "NUMBER", min=0),
    ] = None
    max_tokens: Annotated[int | None, option(SAMPLING, "Tokens that one turn may sample.", "N", min=1)] = None
    extra_body: Annotated[str | None, option(SAMPLING, "Further fields of each model request.", "JSON")] = (
        None
    )
    standard_sampling: Annotated[
        bool,
        option(
            SAMPLING,
            "Send only OpenAI's own sampling fields: no top_k, min_p, repetition_penalty.",
            None,
            "--standard-sampling",
        ),
    ] = False
    no_seeds: Annotated[
        bool,
        option(SAMPLING, "Send no seeds to the model server, which may refuse them.", None, "--no-seeds"),
    ] = False
    seed: Annotated[int, option(SAMPLING, "Seeds of all rollouts derive from it.", "N")] = 0
    checkpoints: Annotated[CheckpointPolicy | None, asked(SANDBOX, "checkpoints", "WHEN")] = None
    checkpoint_mb: Annotated[int | None, asked(SANDBOX, "checkpoint_mb", "MIB")] = None
    terminal_lifetime: Annotated[int | None, asked(SANDBOX, "terminal_lifetime", "SECONDS")] = None
    acquire: Annotated[Acquire | None, asked(SANDBOX, "acquire", "WHEN")] = None
    sandbox: Annotated[str | None, asked(SANDBOX, "sandbox", "NAME")] = None
    image: Annotated[str | None, asked(SANDBOX, "image", "NAME")] = None
    memory_mb: Annotated[int | None, asked(SANDBOX, "memory_mb", "MIB")] = None
    disk_mb: Annotated[int | None, asked(SANDBOX, "disk_mb", "MIB")] = None
    max_processes: Annotated[int | None, asked(SANDBOX, "max_processes", "N")] = None
    limits: Annotated[str | None, asked(SANDBOX, "limits", "WHAT")] = None
    keep_diverged: Annotated[bool | None, asked(SWITCHES, "keep_diverged")] = None
    parallel_tools: Annotated[bool | None, asked(LIMITS, "parallel_tools")] = None
    expose_usr_local: Annotated[bool | None, asked(SWITCHES, "expose_usr_local")] = None
    mounts: Annotated[str | None, asked(SANDBOX, "mounts", "SEEN=FOLDER")] = None
    unsafe_local: Annotated[bool | None, asked(SWITCHES, "unsafe_local")] = None
    on_reward_error: Annotated[OnRewardError | None, asked(LIMITS, "on_reward_error", "WHAT")] = None
    verification_seconds: Annotated[
        float | None,
        # The field's own name is too long for a terminal of 80 columns.
        asked(LIMITS, "verification_seconds", "SECONDS", flag_of("verification_seconds")),
    ] = None
    distribution: Annotated[str | None, asked(LIMITS, "distribution", "NAME|JSON")] = None
    max_result_chars: Annotated[int | None, asked(LIMITS, "max_result_chars", "N")] = None
    max_turn_chars: Annotated[int | None, asked(LIMITS, "max_turn_chars", "N")] = None
    preview_chars: Annotated[int | None, asked(LIMITS, "preview_chars", "N")] = None
    result_chars: Annotated[str | None, asked(LIMITS, "result_chars", "JSON")] = None
    redact: Annotated[str | None, asked(LIMITS, "redact", "NAME,NAME")] = None
    delegation: Annotated[str | None, asked(LIMITS, "delegation", "JSON")] = None
    budget: Annotated[str | None, asked(BUDGETS, "budget", "JSON")] = None
    rollout_budget: Annotated[str | None, asked(BUDGETS, "rollout_budget", "JSON")] = None
    prices: Annotated[str | None, asked(BUDGETS, "prices", "JSON|FILE")] = None

    def manifest(
        self,
        environment: str,
        run: str,
        group_size: int,
        settings: Settings,
        defaults: Mapping[str, JsonValue] = MappingProxyType({}),
    ) -> RunManifest:
        """The run's manifest, where an environment's configuration has other `defaults`.

        Raises InvalidInput that names the option at fault.
        """
        environment, folder = named_environment(environment)
        given = defaults.get("dataset")
        default = DatasetConfig.model_validate(given) if given else settings.dataset
        dataset, choice = self.dataset_config(default), self.item_choice()
        items: dict[str, JsonValue] = {}
        if dataset is not None:
            items["dataset"] = dataset.model_dump(mode="json")
        elif choice is not None:
            items["item_choice"] = choice.model_dump(mode="json")
        manifest = run_manifest(
            environment,
            run,
            # empty: the one that the server lists, or that the run has so far
            self.model_name or ("" if self.acts.has_model else self.agent),
            agent=self._agent(),
            overrides={**defaults, **folder, **items, **parse_overrides(self.config or [])},
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            extra_body=parse_object("--extra-body", self.extra_body) if self.extra_body else None,
            standard_sampling=self.standard_sampling,
            rendering=self.rendering(),
            seed=self.seed,
            send_seeds=not self.no_seeds,
            group_size=group_size,
        )
        return with_checked_tools(manifest.with_settings(settings.run, self._settings()))

    @property
    def acts(self) -> AgentKind:
        """The kind of the agent. Raises InvalidInput for a name that nothing has."""
        return agent_kind(self.agent)

    def _agent(self) -> Agent:
        kind = self.acts
        if (kind is AgentKind.REPLAY) != (self.replays is not None):
            raise InvalidInput("--agent replay and --replays RUN go together")
        return Agent(
            kind=kind,
            replays=checked_run_name(self.replays) if self.replays else None,
            program=self.agent if kind is AgentKind.PROGRAM else None,
        )

    def endpoint(self, model: str | None) -> Endpoint | None:
        """The model server; raises InvalidInput for a model without a place, and for a place without a model."""
        if not self.acts.has_model:
            if model is not None or self.model_name is not None or self.inference is not Inference.CHAT:
                raise InvalidInput(f"--agent {self.agent}: no model acts, so give no option of one")
            return None
        if model is None:
            raise InvalidInput("give --model URL, or an --agent that is no model")
        (url, *more), weights = parsed_servers(model)
        if self.api_key_env is not None:
            checked_variable_name(self.api_key_env)
        return Endpoint(
            base_url=url,
            more_urls=tuple(more),
            weights=weights,
            api_key_variable=self.api_key_env,
            inference=self.inference,
        )

    def _settings(self) -> RunSettings:
        names = RunSettings.model_fields.keys() - {"plugins"}
        of_plugins = parse_plugin_fields(self.config or [])
        return checked_settings(
            {**{name: getattr(self, name) for name in names}, "plugins": of_plugins or None}
        )

    def rendering(self) -> Rendering | None:
        """The rendering; None in chat mode. Raises InvalidInput for options that have no effect there."""
        if self.inference is not Inference.CHAT:
            return Rendering(
                tokenizer=self.tokenizer or "",
                renderer=self.renderer,
                tool_call_parser=self.tool_call_parser,
                thinking_mode=self.thinking,
            )
        without_tokens = ("tokenizer", "renderer", "tool_call_parser", "thinking")
        if given := [f"--{name.replace('_', '-')}" for name in without_tokens if getattr(self, name)]:
            raise InvalidInput(
                f"{', '.join(given)}: the server renders in chat mode; give --inference tokens"
            )
        return None


SHOWN = (
    "model_name",
    "api_key_env",
    "inference",
    "config",
    "temperature",
    "max_tokens",
    "standard_sampling",
    "dataset",
    "sample",
    "ids",
    "sandbox",
    "image",
    "budget",
    "agent",
)
"""Fields of RunOptions that `--help` lists; `--help-all` has all."""


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of RunOptions beside its own; it takes them as `asked`."""
    hints = get_type_hints(RunOptions, include_extras=True)
    options: dict[str, tuple[Any, Any]] = {}
    for one in fields(RunOptions):
        (option,) = hints[one.name].__metadata__
        # a copy: the annotation is shared by all commands that have these options
        option = copy(option)
        option.hidden = one.name not in SHOWN
        options[one.name] = (Annotated[hints[one.name].__origin__, option], one.default)
    listed = typer.Option("--help-all", help="Show all options.", is_eager=True, callback=show_all_options)
    options["help_all"] = (Annotated[bool, listed], False)
    return _with_options(
        command,
        "asked",
        options,
        lambda given: RunOptions(**{name: value for name, value in given.items() if name != "help_all"}),
    )


def show_all_options(context: typer.Context, asked: bool) -> None:
    """Print the help with the options that `--help` leaves out."""
    if not asked:
        return
    for parameter in context.command.params:
        if isinstance(parameter, typer.core.TyperOption):
            parameter.hidden = False
    typer.echo(context.get_help())
    raise typer.Exit


def with_run_logs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each log that plugins have for a run; it takes those given as `logs`."""
    offered = {name: log for plugin in plugins().values() for name, log in plugin.run_logs.items()}
    options = {
        name: (
            Annotated[str | None, typer.Option(f"--{name}", help=log.summary, metavar=log.metavar)],
            None,
        )
        for name, log in offered.items()
    }
    return _with_options(
        command,
        "logs",
        options,
        lambda given: {name: value for name, value in given.items() if value is not None},
    )


def _with_options(
    command: Callable[..., None],
    parameter: str,
    options: Mapping[str, tuple[Any, Any]],
    pack: Callable[[dict[str, Any]], object],
) -> Callable[..., None]:
    """The command with `options`, name -> (annotation, default); it gets them packed, as its `parameter`."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for name, one in signature.parameters.items() if name != parameter]
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]

    def with_packed(**given: Any) -> None:
        packed = pack({name: given.pop(name) for name in options})
        command(**given, **{parameter: packed})

    # by keyword: parameters without a default may then follow others that have one
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *further)]
    # Typer reads the options from the signature
    with_packed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_packed.__doc__ = command.__doc__
    return with_packed
