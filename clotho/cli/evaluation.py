"""`clotho eval`: a held-out set rolled out, its figures, and two evaluations compared."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console

from clotho.cli import run_options as option
from clotho.cli.evaluation_tables import comparison_table, figures_table, notes_on, verdict_text
from clotho.cli.options import Address, AsJson, Store, existing_journal
from clotho.cli.run import Following
from clotho.cli.run_file import expanded
from clotho.cli.terminal import make_console, one_line, print_json
from clotho.config import Settings, load_settings
from clotho.environment.instances import EnvironmentProcesses
from clotho.environment.loading import load_environment
from clotho.environment.named import named_environment
from clotho.errors import ClothoError, InvalidInput
from clotho.evaluation.comparison import compared
from clotho.evaluation.figures import DIFFERENCE, Figures, figures_of
from clotho.evaluation.own_metrics import own_metrics
from clotho.evaluation.results import read_results
from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import checked_run_name
from clotho.runs.export import placed
from clotho.runs.request import RunRequest

ENVIRONMENT = "ENV"
"""The name of the command that is meant where the first word names no other."""

Run = Annotated[str, typer.Argument(help="The run's name.", metavar="RUN")]
Success = Annotated[float, typer.Option(help="The least reward that passes.", metavar="REWARD")]
Difference = Annotated[
    float,
    typer.Option(
        help="The difference between runs for which the items needed are told.", min=1e-6, metavar="REWARD"
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="JSON file to write the figures to.", metavar="FILE")
]


DEFAULT_ITEMS = 32


class EvaluationIncomplete(ClothoError):
    """Some items have no score; the message says how to get them."""


class OfEnvironment(typer.core.TyperGroup):
    """A group that runs its command ENVIRONMENT, unless the first word names another one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            command = self.commands[ENVIRONMENT]
            assert isinstance(command, typer.core.TyperCommand)
            # expanded here: ImportedCommand sees the group, not the command that takes ENV
            args = [ENVIRONMENT, *expanded(command, args)]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=OfEnvironment,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Roll held-out items of ENV out and tell how good its policy is, and how surely; compare two runs.",
)


@app.command(ENVIRONMENT)
@option.with_run_options
def evaluate(
    environment: option.Environment,
    run: option.Run,
    model: option.Model = None,
    groups: option.ChosenGroups = None,
    group_size: option.GroupSize = 4,
    max_open_groups: option.MaxOpenGroups = 16,
    items: option.Items = None,
    success: Success = 1.0,
    difference: Difference = DIFFERENCE,
    output: Output = None,
    detach: option.Detach = False,
    store: Store = None,
    temporal: Address = None,
    *,
    asked: option.RunOptions,
) -> None:
    """Roll held-out items of ENV out, 32 by default, or go on with the run of that name, and print its figures.

    The environment's `held_out` configuration applies, then options as for `clotho run`. Exit status 1 where items
    have no score: a rollout that failed has no reward, and is never counted as 0.
    """
    settings, console = load_settings(store, temporal), make_console()
    held_out = load_environment(named_environment(environment)[0]).held_out
    order = RunRequest(
        manifest=asked.manifest(environment, run, group_size, settings, held_out),
        endpoint=asked.endpoint(model),
        groups=groups or asked.number_chosen or DEFAULT_ITEMS,
        max_open_groups=max_open_groups,
        items=asked.given_items(items),
    )
    if not held_out and items is None and asked.dataset is None and asked.config is None:
        one_line(
            console,
            "the environment names no held-out items: these are its first ones, which may have been trained on",
        )
    asyncio.run(Following(settings, console).run(order, detach))
    if not detach:
        asyncio.run(_show(settings, console, run, success, difference, output))


@app.command("show")
def show(
    run: Run,
    success: Success = 1.0,
    difference: Difference = DIFFERENCE,
    output: Output = None,
    store: Store = None,
) -> None:
    """Print the figures of a run, of which some items may still be open."""
    settings = load_settings(store)
    asyncio.run(_show(settings, make_console(), checked_run_name(run), success, difference, output))


@app.command("compare")
def compare(
    a: Annotated[str, typer.Argument(help="A run's name.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Another run's name.", metavar="B")],
    success: Success = 1.0,
    difference: Difference = DIFFERENCE,
    output: Output = None,
    as_json: AsJson = False,
    store: Store = None,
) -> None:
    """Compare two runs on the items that both have scored: B less A, its interval, and a sign test.

    Items are told by their `id`, or else by their whole content.
    """
    settings, console = load_settings(store), make_console()

    async def print_comparison() -> None:
        journal = await existing_journal(settings)
        one, other = [await read_results(journal, checked_run_name(name)) for name in (a, b)]
        found = compared(one, other, success, difference)
        if as_json:
            print_json(found)
            return
        one_line(console, verdict_text(found), "bold")
        console.print(comparison_table(found))
        for note in notes_on(found):
            one_line(console, note)
        _write(output, found)

    asyncio.run(print_comparison())


async def _show(
    settings: Settings, console: Console, run: str, success: float, difference: float, output: Path | None
) -> None:
    """Print and write the figures; raises EvaluationIncomplete where items have no score."""
    journal = await existing_journal(settings)
    results = await read_results(journal, run)
    try:
        async with EnvironmentProcesses(journal) as environments:
            own = await own_metrics(journal, environments, results.manifest, results.groups)
    except InvalidInput as missing:  # figures of a store don't need the environment
        one_line(console, f"the environment's own metrics are left out: {missing}")
        own = {}
    figures = figures_of(results, success, difference, own)
    console.print(figures_table(figures))
    for note in notes_on(figures):
        one_line(console, note)
    _write(output, figures)
    if results.unscored:
        raise EvaluationIncomplete(incomplete_text(figures))


def incomplete_text(figures: Figures) -> str:
    failed = ", ".join(f"{count} {kind}" for kind, count in figures.failed.items())
    return (
        f"{figures.items - figures.scored} of {figures.items} items have no score, and are in no figure"
        + (f"; rollouts that failed: {failed}" if failed else "")
        + "; the command that started the run goes on with them"
    )


def _write(output: Path | None, figures: FrozenModel) -> None:
    if output is None:
        return
    try:
        with placed(output) as path:
            path.write_text(figures.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise InvalidInput(f"{error.filename or output} can't be written: {error.strerror}") from error
