"""`clotho show`: one rollout as a readable transcript, or a group or run at a glance."""

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from itertools import count
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from temporalio.service import RPCError

from clotho.cli.follow import ending_text, paused_text, show_groups
from clotho.cli.options import Address, AsJson, Store, existing_journal
from clotho.cli.run_states import verifying_text
from clotho.cli.show_group import repair_text, show_group
from clotho.cli.summary import show_summary
from clotho.cli.terminal import amount, make_console, print_json, sanitized_text
from clotho.config import TemporalSettings, load_settings
from clotho.errors import InvalidInput
from clotho.escaping import truncate_middle
from clotho.evaluation.summary import read_summary
from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.identifiers.ids import call_id, group_of, run_of
from clotho.identifiers.keys import (
    asked_key,
    call_key,
    lease_key,
    prompt_key,
    reward_key,
    scored_key,
    turn_key,
    turn_prefix,
)
from clotho.journal import Journal
from clotho.models.backend import SampledTurn
from clotho.models.messages import ChatMessage
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.asked import AskedEntry, ProgramResults, asked_text, messages_added, results_sent
from clotho.rollouts.budget import BudgetEntry
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import GroupEntry, RepairEntry
from clotho.rollouts.lease import LeaseEntry
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.rollouts.turn import TurnEntry
from clotho.rollouts.verification import ArtifactArchive, RewardEntry
from clotho.runs.budgets import read_budget, rollout_spending
from clotho.runs.disturbances import repairs_of
from clotho.runs.pauses import reason_for
from clotho.runs.repairs import group_repairs
from clotho.runs.rollouts import last_failure, program_end_text, program_ends, read_end, sandbox_losses
from clotho.runs.targets import Target
from clotho.temporal.connection import connect
from clotho.temporal.states import describe

SHOWN_ARTIFACTS = 50
TEMPORAL_SECONDS = 3.0
"""Seconds for which Temporal is asked what a rollout is doing: the rest is in the store."""
SHOWN_CHARACTERS = 1_500
"""Characters of a program's own prompts, and of the end of its output; `--json` has all."""
WHOLE = ("output", "content", "diff", "error")
"""Fields that are text of their own; the others are told on one line."""


def command(
    rollout: Annotated[
        str,
        typer.Argument(
            help="A rollout's id, such as my-run/g000003/r1 or my-run/i-name.0/r1; or a group's, or a run's name.",
            metavar="NAME",
        ),
    ],
    as_json: AsJson = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Show a rollout turn by turn, with tool results, timings and reward; or a group, or a run.

    All of it is in the store. Temporal, if it answers, is asked whether a rollout is being verified.
    """
    settings, target = load_settings(store, temporal), Target.named(rollout)

    async def show_stored() -> None:
        console, journal = make_console(), await existing_journal(settings)
        if as_json:
            print_json(await stored_record(journal, target))
        elif target.rollout is not None:
            await show(console, journal, target.rollout, settings.temporal)
        elif target.group is not None:
            await show_group(console, journal, target.group)
        else:
            summary = await read_summary(journal, target.run)
            await show_groups(console, journal, target.run)
            show_summary(console, settings, summary)

    asyncio.run(show_stored())


class RolloutRecord(FrozenModel):
    """A rollout as the store has it."""

    transcript: Transcript
    programs: Annotated[dict[int, ProgramEntry], WHERE_SET] = {}
    """Number of the sandbox -> how the agent's program ended there."""
    reward: RewardEntry | None
    end: RolloutSummary | None


async def stored_record(journal: Journal, target: Target) -> BaseModel:
    """The store's entries of a rollout, group or run. Raises InvalidInput where there is nothing."""
    if target.group is None:
        return await read_summary(journal, target.run)
    if target.rollout is None:
        if (entry := await journal.read(scored_key(target.group), GroupEntry)) is None:
            raise InvalidInput(f"{target} isn't scored: give one of its rollouts")
        return entry
    await require_begun(journal, target.rollout)
    end = await read_end(journal, target.rollout)
    # Entries of a rollout that has ended are one file, which isn't listed by its parts.
    if end is not None:
        turns, losses = end.summary.turns, end.summary.losses
    else:
        # A program has several turns sampled at a time: those after the first gap aren't shown yet.
        sampled = {*await journal.keys(turn_prefix(target.rollout))}
        turns = next(number for number in count() if turn_key(target.rollout, number) not in sampled)
        losses = await sandbox_losses(journal, target.rollout)
    transcript = await read_transcript(journal, target.rollout, turns)
    ran = transcript.prompt.program is not None
    return RolloutRecord(
        transcript=transcript,
        programs=await program_ends(journal, target.rollout, len(losses)) if ran else {},
        reward=await journal.read(reward_key(target.rollout), RewardEntry),
        end=end.summary if end is not None else None,
    )


async def require_begun(journal: Journal, rollout: str) -> None:
    if await journal.read(prompt_key(rollout), Prompt) is None:
        raise InvalidInput(
            f"there is no rollout {rollout!r} in {journal.store_identity}: give RUN/GROUP/rN, "
            "with a group that `clotho status RUN` shows"
        )


async def show(
    console: Console, journal: Journal, rollout: str, temporal: TemporalSettings | None = None
) -> None:
    """Print a rollout; what an open one is doing is asked of `temporal`, if given."""
    await require_begun(journal, rollout)
    repairs = repairs_of(rollout, await group_repairs(journal, group_of(rollout)))
    await StepPrinter(console, journal, rollout, repairs).print_new()
    await show_end(console, journal, rollout)
    if temporal is not None and await read_end(journal, rollout) is None:
        text = await text_of_verification(temporal, rollout)
        if text is not None:
            console.print(text, style="yellow")
    await show_disturbances(console, journal, rollout)


async def text_of_verification(temporal: TemporalSettings, rollout: str) -> str | None:
    """How long a rollout's verifier has been at work; None where it isn't, or Temporal doesn't tell."""
    try:
        async with asyncio.timeout(TEMPORAL_SECONDS):
            described = await describe(await connect(temporal), rollout)
    except (TimeoutError, InvalidInput, RPCError):
        return None
    return None if described is None else verifying_text(described)


class StepPrinter:
    """Prints a rollout as it grows: the prompt, then each turn and its tool results."""

    def __init__(
        self, console: Console, journal: Journal, rollout: str, repairs: Sequence[RepairEntry] = ()
    ) -> None:
        self._console = console
        self._journal = journal
        self._rollout = rollout
        self._repairs = repairs
        self._prompted = False
        self._turns = 0
        self._calls_left: list[str] = []
        self._lease = 0
        self._program = False
        self._prompt: Sequence[ChatMessage] = ()
        self._asked: dict[int, AskedEntry] = {}
        self._sampled: dict[int, TurnEntry] = {}
        self._results: dict[int, ProgramResults] = {}

    async def print_new(self) -> None:
        """Print everything that the journal has by now."""
        if await self._print_prompt():
            while await self._print_calls() and await self._print_turn():
                pass

    async def _print_prompt(self) -> bool:
        if not self._prompted and (prompt := await self._journal.read(prompt_key(self._rollout), Prompt)):
            self._prompted, self._program = True, prompt.program is not None
            self._prompt = prompt.messages
            if prompt.delegated is not None:
                heading(self._console, f"task of {prompt.delegated.parent}, call {prompt.delegated.call}")
            for message in prompt.messages:
                show_message(self._console, message)
        return self._prompted

    async def _print_calls(self) -> bool:
        """Whether all calls of the last turn are printed."""
        while self._calls_left:
            call = await self._journal.read(call_key(self._rollout, self._calls_left[0]), CallEntry)
            if call is None:
                return False
            del self._calls_left[0]
            if call.lease is not None and call.lease > self._lease:
                self._lease = call.lease
                await show_loss(self._console, self._journal, self._rollout, call.lease)
            show_call(self._console, call)
        return True

    async def _print_turn(self) -> bool:
        turn = await self._journal.read(turn_key(self._rollout, self._turns), TurnEntry)
        if turn is None:
            return False
        for repair in self._repairs:
            if (
                repair.turns == self._turns
                and repair.continued_as == repair.failure.workflow == self._rollout
            ):
                heading(self._console, f"repaired: it had failed with {repair.failure.reason}", "yellow")
        if self._program:
            await self._print_asked(self._turns, turn)
        else:
            self._calls_left = [call_id(self._turns, index) for index in range(len(turn.tool_calls))]
        show_turn(self._console, self._turns, turn)
        self._turns += 1
        return True

    async def _print_asked(self, number: int, turn: TurnEntry) -> None:
        """Print what a program asked with: results of its tool calls, and other messages."""
        self._asked[number] = asked = await self._journal.read_required(
            asked_key(self._rollout, number), AskedEntry
        )
        if text := asked_text(number, self._asked):
            heading(self._console, text, "yellow")
        if asked.extends not in self._results:
            results = results_sent(number, self._asked, self._sampled)
            if results is not None:
                self._results[results.of_turn] = results
                for entry in results.entries:
                    show_program_call(self._console, entry)
        for message in messages_added(asked, self._results):
            if message not in self._prompt:
                show_message(self._console, message, SHOWN_CHARACTERS)
        self._sampled[number] = turn


async def show_loss(console: Console, journal: Journal, rollout: str, lease: int) -> None:
    """A note on a sandbox that replaced a lost one, or one that was given back."""
    entry = await journal.read(lease_key(rollout, lease), LeaseEntry)
    fidelity = f", {entry.fidelity}" if entry is not None and entry.fidelity is not None else ""
    what = "lost" if fidelity else "idle and given back"
    heading(console, f"the sandbox was {what}; from here on another one, number {lease}{fidelity}", "yellow")


def heading(console: Console, text: str, style: str = "bold") -> None:
    console.print(sanitized_text(f"── {text}", style))


def show_message(console: Console, message: ChatMessage, most: int | None = None) -> None:
    """A message of a prompt, shortened to `most` characters."""
    text = message.content if isinstance(message.content, str) else json.dumps(message.content)
    shortened = most is not None and len(text) > most
    heading(
        console, f"{message.role} · shortened from {len(text):,} characters" if shortened else message.role
    )
    console.print(sanitized_text(truncate_middle(text, most) if most is not None else text))


def show_turn(console: Console, number: int, turn: TurnEntry) -> None:
    if (sampled := turn.sampled) is None:
        heading(console, f"turn {number}: context overflow")
        console.print(sanitized_text(turn.context_overflow or ""))
        return
    at = datetime.fromtimestamp(sampled.started).strftime("%H:%M:%S")
    tokens = amount(sampled.usage.completion_tokens, "token")
    heading(
        console,
        f"assistant, turn {number} · {at} · {sampled.seconds:.2f} s · {tokens} "
        f"after {sampled.usage.prompt_tokens} · {sampled.finish_reason}{resumed_text(sampled)}",
    )
    if sampled.message.reasoning_content:
        console.print(sanitized_text(sampled.message.reasoning_content, "dim"))
    if isinstance(sampled.message.content, str) and sampled.message.content:
        console.print(sanitized_text(sampled.message.content))
    if sampled.defects.total:
        console.print(f"tool calls not run as written: {sampled.defects}", style="yellow")
    for call in sampled.message.tool_calls:
        console.print(sanitized_text(call_text(call.function.name, call.function.arguments), "cyan"))


def show_call(console: Console, call: CallEntry) -> None:
    failed = " · counted as an error" if call.error else ""
    heading(console, f"{call.tool} · {call.seconds:.3f} s{failed}", "bold red" if call.error else "bold")
    if call.child is not None:
        console.print(f"the task was done by: clotho show {call.child}", style="dim")
    console.print(sanitized_text(result_text(call.content)))


def show_program_call(console: Console, call: CallEntry) -> None:
    heading(console, f"{call.tool} · by the program")
    console.print(sanitized_text(result_text(call.content)))


async def show_programs(console: Console, journal: Journal, rollout: str, program: str, losses: int) -> None:
    """How the agent's program ended, and the end of what it wrote."""
    for lease, entry in (await program_ends(journal, rollout, losses)).items():
        for text in program_end_text(program, lease, entry):
            heading(console, text)
        console.print(sanitized_text(entry.output[-SHOWN_CHARACTERS:].strip(), "dim"))


def resumed_text(sampled: SampledTurn) -> str:
    """A note on an interrupted turn: the tokens after which it was continued."""
    resumed = sampled.tokens.resumed_at if sampled.tokens is not None else ()
    return f" · resumed after token {', '.join(map(str, resumed))}" if resumed else ""


async def show_end(console: Console, journal: Journal, rollout: str) -> None:
    end = await read_end(journal, rollout)
    prompt = await journal.read(prompt_key(rollout), Prompt)
    program = prompt.program if prompt is not None else None
    if program is not None:
        losses = end.summary.losses if end is not None else await sandbox_losses(journal, rollout)
        await show_programs(console, journal, rollout, program, len(losses))
    reward = await journal.read(reward_key(rollout), RewardEntry)
    if reward is not None:
        parts = " · ".join(f"{name} {value:g}" for name, value in reward.breakdown.items())
        refused = f"the agent kept its verifier from its work: {reward.refused}" if reward.refused else ""
        heading(console, f"reward {reward.score:g} · verified in {reward.seconds:.3f} s")
        console.print(sanitized_text("\n".join(text for text in (parts, reward.log, refused) if text)))
        if reward.artifacts is not None:
            show_artifacts(console, reward.artifacts)
    if end is None:
        if (failure := await last_failure(journal, rollout)) is None:
            console.print("not finished", style="yellow")
        else:
            heading(console, f"failed: {failure.kind}", "bold red")
            console.print(sanitized_text(failure.reason))
            console.print(f"it has no reward; to try again: clotho retry {rollout}")
        if (reason := await reason_for(journal, rollout)) is not None:
            console.print(sanitized_text(paused_text(reason), "yellow"))
        return
    summary = end.summary
    defective = f", {summary.defective_calls} not as written" if summary.defective_calls else ""
    calls = f"{amount(summary.tool_calls, 'tool call')} ({amount(summary.tool_errors, 'error')}{defective}), "
    if program is not None:
        calls = ""  # it makes them by itself, and the workflow counts none
    console.print(
        f"{ending_text(summary.ending)}: {amount(summary.turns, 'turn')}, {calls}"
        f"{amount(summary.sampled_tokens, 'token')}, {summary.active_seconds:.1f} s active"
    )
    if (price := (await read_budget(journal, run_of(rollout)) or BudgetEntry()).price) is not None:
        spent = await rollout_spending(journal, rollout, summary.turns)
        console.print(
            f"${spent.cost(price):,.4g} for {spent.prompt_tokens:,} prompt tokens "
            f"({spent.cached_prompt_tokens:,} cached) and {spent.sampled_tokens:,} sampled ones"
        )
    if summary.resumed_turns:
        console.print(f"turns that were interrupted and went on from their tokens: {summary.resumed_turns}")


def show_artifacts(console: Console, archive: ArtifactArchive) -> None:
    heading(console, f"artifacts · {amount(len(archive.files), 'file')} · archive {archive.sha256}")
    for file in archive.files[:SHOWN_ARTIFACTS]:
        console.print(sanitized_text(f"{file.name}  {file.size} bytes  sha256 {file.sha256[:12]}"))
    if (more := len(archive.files) - SHOWN_ARTIFACTS) > 0:
        console.print(f"and {more} more")


async def show_disturbances(console: Console, journal: Journal, rollout: str) -> None:
    """The rollout's disturbances so far."""
    end = await read_end(journal, rollout)
    losses = end.summary.losses if end else await sandbox_losses(journal, rollout)
    if losses:
        console.print(f"lost sandboxes: {len(losses)}, followed by: {', '.join(losses)}")
    for repair in repairs_of(rollout, await group_repairs(journal, group_of(rollout))):
        console.print(sanitized_text(repair_text(repair)))


def result_text(content: str) -> str:
    """A tool's result: its texts as they are, then what else it says; what is no JSON object, unchanged."""
    fields = _object(content)
    if fields is None:
        return content
    texts = [str(fields[name]) for name in WHOLE if isinstance(fields.get(name), str) and fields[name]]
    rest = {
        name: value
        for name, value in fields.items()
        if value not in (None, "") and not (name in WHOLE and isinstance(value, str))
    }
    line = " · ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in rest.items()
    )
    return "\n".join(text.rstrip("\n") for text in (*texts, line) if text)


def call_text(name: str, arguments: str) -> str:
    """A call: as the model wrote it, but arguments of several lines as text under it."""
    fields = _object(arguments)
    if fields is None or not any(isinstance(value, str) and "\n" in value for value in fields.values()):
        return f"{name}({arguments})"
    short = {key: value for key, value in fields.items() if not (isinstance(value, str) and "\n" in value)}
    long = [f"{key}:\n{value}" for key, value in fields.items() if key not in short]
    return "\n".join([f"{name}({json.dumps(short, ensure_ascii=False) if short else ''})", *long])


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object in `text`; None for anything else, and for one that can't be written again."""
    try:
        value = json.loads(text)
        # nested almost too deeply it is read, and not written
        json.dumps(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
