"""`clotho show` of a group: its item, its tools, and how each of its rollouts went."""

import json

from rich.console import Console
from rich.table import Table

from clotho.cli.follow import counted, ending_text, paused_text
from clotho.cli.terminal import amount, sanitized_text
from clotho.errors import InvalidInput
from clotho.identifiers.ids import run_of
from clotho.identifiers.keys import attempt_prefix, prompt_key, scored_key, tools_key
from clotho.journal import Journal
from clotho.rollouts.group import AttemptEntry, GroupEntry, RepairEntry, ToolManifest
from clotho.rollouts.rollout import Prompt
from clotho.runs.disturbances import disturbances_of
from clotho.runs.pauses import Paused, paused_in, reason_among
from clotho.runs.repairs import group_repairs
from clotho.runs.rollouts import read_end

Row = tuple[str, ...]


async def show_group(console: Console, journal: Journal, group: str) -> None:
    """Show a group at a glance. Raises InvalidInput for one that was never begun."""
    keys = await journal.keys(f"{group}/")
    rollouts = sorted({"/".join(key.split("/")[:3]) for key in keys if key.count("/") > 2 and _is_of(key)})
    scored = await journal.read(scored_key(group), GroupEntry)
    if not rollouts and scored is None:
        raise InvalidInput(f"there is no group {group!r} in {journal.store_identity}")
    repairs = await group_repairs(journal, group)
    begun = scored or await journal.read_required(prompt_key(rollouts[0]), Prompt)
    console.print(sanitized_text(f"item: {json.dumps(begun.item, ensure_ascii=False)}"))
    if (tools := await journal.read(tools_key(group), ToolManifest)) is not None:
        console.print(sanitized_text(f"tools: {', '.join(tool.name for tool in tools.tools) or 'none'}"))
    table = Table("rollout", "reward", "turns", "tool calls", "tokens", "outcome", "disturbed", title=group)
    paused = await paused_in(journal, run_of(group))
    for rollout in rollouts:
        table.add_row(*await _row(journal, rollout, keys, repairs, paused))
    console.print(table)
    for repair in repairs:
        console.print(sanitized_text(repair_text(repair), "yellow"))
    attempts = await journal.read_many(await journal.keys(attempt_prefix(group)), AttemptEntry)
    for failure in (failure for attempt in attempts if attempt for failure in attempt.failures):
        console.print(sanitized_text(f"{failure.workflow} failed: {failure.reason}", "red"))
    if scored is None and (reason := reason_among(paused, group)) is not None:
        console.print(sanitized_text(paused_text(reason), "yellow"))
    console.print(f"{'scored' if scored else 'not scored yet'}; a rollout: clotho show {rollouts[0]}")


def repair_text(repair: RepairEntry) -> str:
    how = "went on" if repair.continued_as == repair.failure.workflow else "was replaced"
    return f"{repair.failure.workflow} {how} after {amount(repair.turns, 'turn')}: {repair.failure.reason}"


def _is_of(key: str) -> bool:
    """Whether a group's key is one of a rollout, rather than of its attempts or deliveries."""
    name = key.split("/")[2]
    return name.startswith("r") and name[1:2].isdigit()


async def _row(
    journal: Journal, rollout: str, keys: list[str], repairs: tuple[RepairEntry, ...], paused: Paused
) -> Row:
    name = rollout.rpartition("/")[2]
    end = await read_end(journal, rollout)
    if end is None:
        turns, calls = (
            sum(key.startswith(f"{rollout}/{kind}/") for key in keys) for kind in ("turn", "call")
        )
        state = "not finished" if reason_among(paused, rollout) is None else "paused"
        return name, "-", str(turns), str(calls), "-", state, ""
    summary = end.summary
    return (
        name,
        f"{summary.score:g}" if summary.parent is None else "",
        str(summary.turns),
        str(summary.tool_calls),
        f"{summary.sampled_tokens:,}",
        ending_text(summary.ending),
        counted([str(kind) for kind in disturbances_of(summary, repairs)]),
    )
