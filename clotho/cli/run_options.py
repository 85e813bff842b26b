"""The options of `clotho run`, and how they read on the command line."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clotho.inference.base import Inference
from clotho.records.run_settings import CheckpointPolicy, OnRewardError, RunSettings

Environment = Annotated[
    str, typer.Argument(help="A module in environments/, or module:Class.", metavar="ENV")
]
Model = Annotated[
    str,
    typer.Option(help="Base URL of an OpenAI-compatible server, such as http://host:8000/v1.", metavar="URL"),
]
Run = Annotated[str, typer.Option(help="The run's name; giving it again resumes it.", metavar="NAME")]
ModelName = Annotated[
    str | None,
    typer.Option(
        help="The model's name, as the server knows it.", show_default="the one it lists", metavar="NAME"
    ),
]
KeyVariable = Annotated[
    str | None,
    typer.Option(help="Environment variable that holds the key, in the workers.", metavar="NAME"),
]
Mode = Annotated[
    Inference,
    typer.Option(
        help="How turns are sampled. Only tokens are training data: vLLM and SGLang give them. "
        "tokens: whichever way the server has."
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="With tokens: a name on the Hugging Face hub, or a folder where models are called from.",
        show_default="the model's name",
        metavar="NAME",
    ),
]
Renderer = Annotated[
    str | None,
    typer.Option(
        help="With tokens: what renders the model's chat format; needed for a checkpoint in a folder.",
        show_default="the one made for the tokenizer's name, else its chat template",
        metavar="NAME",
    ),
]
ToolCallParser = Annotated[
    str | None,
    typer.Option(
        help="With tokens: what reads tool calls, by vLLM's names; `renderer`: the hand-coded renderer itself.",
        show_default="that of the model's family, else the renderer",
        metavar="NAME",
    ),
]
Thinking = Annotated[
    bool, typer.Option(help="With tokens: keep think blocks in the history that later turns see.")
]
Groups = Annotated[int, typer.Option(help="How many items to roll out.", min=1)]
GroupSize = Annotated[int, typer.Option(help="Rollouts of each item.", min=1)]
MaxOpenGroups = Annotated[int, typer.Option(help="How many groups run at once.", min=1)]
Items = Annotated[
    Path | None,
    typer.Option(
        help="JSONL file of items, in place of the environment's own.",
        exists=True,
        dir_okay=False,
        readable=True,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="A field of the environment's configuration.", metavar="NAME=JSON"),
]
Temperature = Annotated[float | None, typer.Option(help="Overrides the environment's.", min=0)]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens that one turn may sample.", min=1)]
ExtraBody = Annotated[str | None, typer.Option(help="Further fields of each model request.", metavar="JSON")]
StandardSampling = Annotated[
    bool,
    typer.Option(help="Send only OpenAI's own sampling fields: no top_k, min_p, repetition_penalty."),
]
Seed = Annotated[int, typer.Option(help="Seeds of all rollouts derive from it.")]
Detach = Annotated[bool, typer.Option(help="Start it and return.")]


def asked(name: str, metavar: str | None = None) -> Any:
    """The option for a field of RunSettings, whose values it checks; clotho.yaml may have it under `run`."""
    return typer.Option(
        help=RunSettings.model_fields[name].description,
        metavar=metavar,
        show_default=False,
        rich_help_panel=PANEL,
    )


PANEL = "What the run's rollouts get; clotho.yaml may say it too, under `run`"

Checkpoints = Annotated[CheckpointPolicy | None, asked("checkpoints")]
CheckpointSize = Annotated[int | None, asked("checkpoint_mb", "MIB")]
KeepDiverged = Annotated[bool | None, asked("keep_diverged")]
RewardError = Annotated[OnRewardError | None, asked("on_reward_error")]
UnsafeLocal = Annotated[bool | None, asked("unsafe_local")]
Memory = Annotated[int | None, asked("memory_mb", "MIB")]
Disk = Annotated[int | None, asked("disk_mb", "MIB")]
Processes = Annotated[int | None, asked("max_processes")]
Bounds = Annotated[str | None, asked("limits", "required|best_effort")]
UsrLocal = Annotated[bool | None, asked("expose_usr_local")]
ResultChars = Annotated[int | None, asked("max_result_chars")]
TurnChars = Annotated[int | None, asked("max_turn_chars")]
PreviewChars = Annotated[int | None, asked("preview_chars")]
ToolResultChars = Annotated[str | None, asked("result_chars", "JSON")]
Redact = Annotated[str | None, asked("redact", "NAME,NAME")]
