"""`clotho show`: one rollout as a readable transcript."""

import asyncio
import json
from datetime import datetime
from itertools import count
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule

from clotho.cli.follow import ending_text
from clotho.cli.options import Store, open_journal
from clotho.config import load_settings
from clotho.entries import CallEntry, Prompt, RewardEntry, TurnEntry
from clotho.errors import InvalidInput
from clotho.identifiers import prompt_key, reward_key, turn_key
from clotho.inference.base import ChatMessage
from clotho.journal import Journal
from clotho.runs import read_end
from clotho.transcript import read_transcript


def command(
    rollout: Annotated[str, typer.Argument(help="A rollout's id, such as my-run/g000003/r1.")],
    store: Store = None,
) -> None:
    """Show a rollout turn by turn, with its tool results, timings and reward. Running ones too."""
    journal = open_journal(load_settings(store=store))
    asyncio.run(show(Console(), journal, rollout))


async def show(console: Console, journal: Journal, rollout: str) -> None:
    if await journal.read(prompt_key(rollout), Prompt) is None:
        raise InvalidInput(
            f"there is no rollout {rollout!r} in {journal.store_identity}; see `clotho status RUN`"
        )
    transcript = await read_transcript(journal, rollout, await count_turns(journal, rollout))
    for message in transcript.prompt.messages:
        show_message(console, message)
    for number, step in enumerate(transcript.steps):
        show_turn(console, number, step.turn)
        for call in step.calls:
            show_call(console, call)
    await show_end(console, journal, rollout)


async def count_turns(journal: Journal, rollout: str) -> int:
    """How many turns the journal has, without a gap."""
    for number in count():
        if await journal.read(turn_key(rollout, number), TurnEntry) is None:
            return number
    raise AssertionError("unreachable")


def show_message(console: Console, message: ChatMessage) -> None:
    console.print(Rule(message.role, align="left"))
    text = message.content if isinstance(message.content, str) else json.dumps(message.content)
    console.print(escape(text), highlight=False)


def show_turn(console: Console, number: int, turn: TurnEntry) -> None:
    if (sampled := turn.sampled) is None:
        console.print(Rule(f"turn {number}: context overflow", align="left"))
        console.print(escape(turn.context_overflow or ""), highlight=False)
        return
    at = datetime.fromtimestamp(sampled.started).strftime("%H:%M:%S")
    console.print(
        Rule(
            f"assistant, turn {number} · {at} · {sampled.seconds:.2f} s · {sampled.usage.completion_tokens} tokens "
            f"after {sampled.usage.prompt_tokens} · {sampled.finish_reason}",
            align="left",
        )
    )
    if sampled.message.reasoning_content:
        console.print(escape(sampled.message.reasoning_content), style="dim", highlight=False)
    if isinstance(sampled.message.content, str) and sampled.message.content:
        console.print(escape(sampled.message.content), highlight=False)
    for call in sampled.message.tool_calls:
        console.print(
            f"[cyan]{escape(call.function.name)}[/]({escape(call.function.arguments)})", highlight=False
        )


def show_call(console: Console, call: CallEntry) -> None:
    failed = " · [red]counted as an error[/]" if call.error else ""
    console.print(Rule(f"{escape(call.tool)} · {call.seconds:.3f} s{failed}", align="left"))
    console.print(escape(call.content), highlight=False)


async def show_end(console: Console, journal: Journal, rollout: str) -> None:
    reward = await journal.read(reward_key(rollout), RewardEntry)
    if reward is not None:
        parts = " · ".join(f"{name} {value:g}" for name, value in reward.breakdown.items())
        console.print(Rule(f"reward {reward.score:g} · verified in {reward.seconds:.3f} s", align="left"))
        console.print(escape("\n".join(text for text in (parts, reward.log) if text)), highlight=False)
    end = await read_end(journal, rollout)
    if end is None:
        console.print("[yellow]not finished[/]")
        return
    summary = end.summary
    console.print(
        f"{ending_text(summary.ending)}: {summary.turns} turns, {summary.tool_calls} tool calls "
        f"({summary.tool_errors} errors), {summary.sampled_tokens} tokens, {summary.active_seconds:.1f} s active"
    )
