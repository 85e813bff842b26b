"""`clotho pause | resume | cancel | retry`: an operator's actions on a run, a group or a rollout."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clotho.cli.assignments import checked_settings
from clotho.cli.follow import paused_text
from clotho.cli.interruption import Interruption
from clotho.cli.options import Address, Store, existing_journal
from clotho.cli.terminal import make_console, one_line, rerun_command
from clotho.config import Settings, load_settings
from clotho.run_settings import RunSettings
from clotho.runs.operations import Boundaries, Operations
from clotho.runs.targets import Target
from clotho.temporal.connection import connect

PERIOD = 0.5

Name = Annotated[
    str,
    typer.Argument(
        help="A run, group or rollout: my-run, my-run/g000003 or my-run/g000003/r1. "
        "Groups of an adapter's run are named by their items: my-run/i-name.0.",
        metavar="NAME",
    ),
]
Operation = Callable[[Operations, Target, Settings, Console], Awaitable[None]]


def pause(name: Name, store: Store = None, temporal: Address = None) -> None:
    """Pause a run, group or rollout before its next turns, and wait until all of it has stopped.

    Calls in flight are finished. Ctrl-C ends the waiting; the pause stays.
    """
    operate(pause_and_wait, name, store, temporal)


def resume(
    name: Name,
    store: Store = None,
    temporal: Address = None,
    budget: Annotated[
        str | None, typer.Option(help="Its new budget: cost=30, or JSON.", metavar="JSON")
    ] = None,
    prices: Annotated[
        str | None, typer.Option(help="Its new prices, as `clotho run` takes them.", metavar="JSON|FILE")
    ] = None,
) -> None:
    """Resume a run, group or rollout, with what is paused in it, and start a run's unscored groups again."""
    asked = {"budget": budget, "prices": prices}
    settings = checked_settings({name: text for name, text in asked.items() if text is not None})
    operate(partial(resume_now, account=settings), name, store, temporal)


def cancel(name: Name, store: Store = None, temporal: Address = None) -> None:
    """End a run, group or rollout and its sandboxes, without a reward. What was scored stays."""
    operate(cancel_now, name, store, temporal)


def retry(name: Name, store: Store = None, temporal: Address = None) -> None:
    """Start a failed or cancelled run, group or rollout again. What was scored stays."""
    operate(retry_now, name, store, temporal)


def operate(operation: Operation, name: str, store: str | None, temporal: str | None) -> None:
    """Run `operation` with the store and the Temporal server that the options name."""
    target = Target.named(name)
    settings = load_settings(store, temporal)

    async def work() -> None:
        journal = await existing_journal(settings)
        operations = Operations(journal, await connect(settings.temporal))
        await operation(operations, target, settings, make_console())

    async def interruptible() -> None:
        await Interruption().ends(work())

    asyncio.run(interruptible())


async def pause_and_wait(
    operations: Operations, target: Target, settings: Settings, console: Console
) -> None:
    await operations.pause(target)
    one_line(console, f"{target} is told to pause; to go on: {rerun_command(f'resume {target}', settings)}")
    said: Boundaries | None = None
    while True:
        reached = await operations.boundaries(target)
        # Twice the same: what has just been started is not listed at once.
        if reached == said and reached.paused == reached.running:
            return
        if reached != said:
            one_line(console, f"{reached.paused} of {reached.running} running rollouts have stopped")
        said = reached
        await asyncio.sleep(PERIOD)


async def resume_now(
    operations: Operations, target: Target, settings: Settings, console: Console, account: RunSettings
) -> None:
    if account != RunSettings():
        await operations.change_budget(target, account)
    # before the resumption, which takes the new code: afterwards nothing differs
    changed = await operations.changed_sources(target)
    started = await operations.resume(target)
    one_line(console, f"{target} {'was started again' if started else 'goes on'}")
    say_changed(console, changed)


async def cancel_now(operations: Operations, target: Target, settings: Settings, console: Console) -> None:
    await operations.cancel(target)
    one_line(
        console, f"{target} is told to end; to do what is left: {rerun_command(f'retry {target}', settings)}"
    )


def say_changed(console: Console, changed: Sequence[Path], kept_by: str | None = None) -> None:
    """Say which code the run goes on with: the new one, unless it is `kept_by` a run that is under way."""
    if changed:
        names = ", ".join(path.name for path in changed)
        does = "what is left is done with the new code"
        if kept_by is not None:
            does = f"it goes on with the code that it has: `clotho resume {kept_by}` lets it take the new"
        one_line(console, f"changed since the run took its code: {names}; {does}")


async def retry_now(operations: Operations, target: Target, settings: Settings, console: Console) -> None:
    changed = await operations.changed_sources(target)
    started = await operations.retry(target)
    if started:
        reason = await operations.pause_reason(target)
        still = f", and is {paused_text(reason)}" if reason is not None else ""
        one_line(console, f"{target} was started again{still}")
    else:
        one_line(console, f"nothing was started: what is left of {target} is running")
    say_changed(console, changed)
    delivery = await operations.settled(target)
    if delivery is not None and delivery.reason is not None:
        one_line(
            console,
            f"it was dropped for the trainer ({delivery.reason}) and isn't delivered: `clotho export` will have it",
        )
