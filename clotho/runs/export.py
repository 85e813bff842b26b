"""Scored groups as JSON lines, for supervised training and for reading."""

import json
import os
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import JsonValue

from clotho.errors import InvalidInput, JournalCorrupt
from clotho.escaping import json_line
from clotho.identifiers.keys import artifact_key, reward_key, tools_key
from clotho.journal import Journal
from clotho.models.messages import ChatMessage, FunctionCall
from clotho.rollouts.group import GroupEntry, ToolManifest
from clotho.rollouts.rollout import RolloutSummary
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.rollouts.verification import RewardEntry
from clotho.runs.children import Descendant, all_descendants
from clotho.runs.disturbances import (
    Disturbance,
    disturbances_of,
    disturbances_with_children,
    repairs_of,
)
from clotho.runs.groups import scored_groups
from clotho.runs.manifest import read_manifest
from clotho.runs.parquet import PARQUET, parquet_file, rollout_row, rollouts_schema

Line = dict[str, JsonValue]
SHAREGPT_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "human",
    "assistant": "gpt",
    "tool": "tool",
}


class Format(StrEnum):
    MESSAGES = "messages"
    SHAREGPT = "sharegpt"
    GROUPS = "groups"


async def export_run(
    journal: Journal, run: str, form: Format, output: Path, exclude: Collection[Disturbance] = ()
) -> int:
    """Write the run's scored groups to `output`, as `export_lines` gives them; returns the number of lines.

    A file appears whole or not at all, with rows in place of lines if it ends in .parquet; into a pipe or device
    lines go as they come. Raises InvalidInput for an unknown run, and for a form that has no rows.
    """
    lines = 0
    if output.suffix == PARQUET:
        if form is not Format.MESSAGES:
            raise InvalidInput(f"Parquet files have rollouts or tokens: --format {form} has neither")
        with placed(output) as path, parquet_file(path, rollouts_schema) as add:
            async for line in _lines(journal, run, form, exclude):
                add([rollout_row(line)])
                lines += 1
        return lines
    with placed(output) as path, path.open("w", encoding="utf-8") as file:
        async for text in export_lines(journal, run, form, exclude):
            file.write(text)
            lines += 1
    return lines


@contextmanager
def placed(output: Path) -> Iterator[Path]:
    """Yield a temporary file that becomes `output` on success; `output` itself if it is a pipe or device."""
    if output.exists() and not output.is_file():
        yield output
        return
    # the file behind a symbolic link: a rename would replace the link
    target = output.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place: a rename from another file system is a copy, which a reader may see half of.
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


async def export_lines(
    journal: Journal, run: str, form: Format, exclude: Collection[Disturbance] = ()
) -> AsyncIterator[str]:
    """The run's scored groups as lines of JSON, without rollouts that were disturbed in a way to `exclude`.

    Raises InvalidInput for an unknown run.
    """
    async for line in _lines(journal, run, form, exclude):
        yield json_line(line) + "\n"


async def _lines(
    journal: Journal, run: str, form: Format, exclude: Collection[Disturbance]
) -> AsyncIterator[Line]:
    # an unknown run is refused: its groups would be none, and the file empty
    await read_manifest(journal, run)
    async for group, entry, kept in recorded_groups(journal, run, exclude):
        siblings = [one.summary for one in kept]
        tools = await journal.read_required(tools_key(group), ToolManifest)
        lines = [_rollout(group, entry, one, tools, form) for one in kept]
        # a group whose rollouts are all excluded has no line
        if form is Format.GROUPS and lines:
            whole: Line = {
                "group": group,
                "item": entry.item,
                "toolsets": list(entry.toolsets),
                "scores": [summary.score for summary in siblings],
                "rollouts": list(lines),
            }
            lines = [whole]
        for line in lines:
            yield line


async def export_artifacts(journal: Journal, run: str, folder: Path) -> int:
    """Write the archives of what the run's scored rollouts left, as `{sha256}.tar.zst`; returns how many."""
    digests = set()
    for _, entry in await scored_groups(journal, run):
        rewards = await journal.read_many([reward_key(each.rollout) for each in entry.siblings], RewardEntry)
        digests |= {
            each.artifacts.sha256 for each in rewards if each is not None and each.artifacts is not None
        }
    for digest in sorted(digests):
        if (archive := await journal.read_bytes(artifact_key(run, digest))) is None:
            raise JournalCorrupt(f"the artifacts {artifact_key(run, digest)} are missing")
        with placed(folder / f"{digest}.tar.zst") as path:
            path.write_bytes(archive)
    return len(digests)


@dataclass(frozen=True)
class RecordedRollout:
    """A scored rollout with its children and what they did."""

    summary: RolloutSummary
    transcript: Transcript
    reward: RewardEntry
    children: Sequence[Descendant]
    disturbances: tuple[Disturbance, ...]


async def recorded_groups(
    journal: Journal, run: str, exclude: Collection[Disturbance] = ()
) -> AsyncIterator[tuple[str, GroupEntry, list[RecordedRollout]]]:
    """The run's scored groups with their rollouts, without those that were disturbed in a way to `exclude`."""
    for group, entry in await scored_groups(journal, run):
        read = [await _read(journal, entry, summary) for summary in entry.siblings]
        yield group, entry, [one for one in read if frozenset(exclude).isdisjoint(one.disturbances)]


async def _read(journal: Journal, entry: GroupEntry, summary: RolloutSummary) -> RecordedRollout:
    transcript = await read_transcript(journal, summary.rollout, summary.turns)
    reward = await journal.read_required(reward_key(summary.rollout), RewardEntry)
    children = await all_descendants(journal, transcript)
    disturbances = disturbances_with_children(summary, [end for end, _ in children], entry.repairs)
    return RecordedRollout(summary, transcript, reward, children, disturbances)


def _rollout(group: str, entry: GroupEntry, read: RecordedRollout, tools: ToolManifest, form: Format) -> Line:
    summary, reward = read.summary, read.reward
    offered = read.transcript.offered or [tool.tool_schema for tool in tools.tools]
    line: Line = {
        "rollout": summary.rollout,
        "disturbances": [str(kind) for kind in read.disturbances],
        "sandbox_losses": [str(fidelity) for fidelity in summary.losses],
        "resumed_turns": summary.resumed_turns,
        "repairs": [repair.model_dump(mode="json") for repair in repairs_of(summary.rollout, entry.repairs)],
        "replacement_of": summary.replacement_of,
        "reward": summary.score,
        "reward_breakdown": dict(reward.breakdown),
        "reward_error": reward.error,
        "artifacts": None if reward.artifacts is None else reward.artifacts.model_dump(mode="json"),
        "outcome": str(summary.ending.outcome),
        "limit": summary.ending.limit,
        "turns": summary.turns,
        "tool_errors": summary.tool_errors,
        "defective_calls": summary.defective_calls,
        "sampled_tokens": summary.sampled_tokens,
        "tools": [dict(schema) for schema in offered],
    }
    line |= _conversation(read.transcript, form)
    line["children"] = [_child(end, did, form) for end, did in read.children]
    if form is not Format.GROUPS:
        line["group"] = group
        line["item"] = entry.item
    return line


def _child(end: RolloutSummary, did: Transcript, form: Format) -> Line:
    """A rollout that did a delegated task: it has no reward of its own."""
    line: Line = {
        "rollout": end.rollout,
        "parent": end.parent,
        "disturbances": [str(kind) for kind in disturbances_of(end, ())],
        "outcome": str(end.ending.outcome),
        "limit": end.ending.limit,
        "turns": end.turns,
        "sampled_tokens": end.sampled_tokens,
    }
    return line | _conversation(did, form)


def _conversation(transcript: Transcript, form: Format) -> Line:
    if form is Format.SHAREGPT:
        return {"conversations": [_sharegpt(message) for message in transcript.messages]}
    return {"messages": [dict(message.wire()) for message in transcript.messages]}


def _sharegpt(message: ChatMessage) -> JsonValue:
    """Reasoning and tool calls become tagged text, as datasets of this format have them."""
    text = message.content if isinstance(message.content, str) else json.dumps(message.content or "")
    if message.role == "tool":
        text = f"<tool_response>\n{text}\n</tool_response>"
    if message.reasoning_content:
        text = f"<think>\n{message.reasoning_content}\n</think>\n{text}"
    for call in message.tool_calls:
        text = f"{text}\n<tool_call>\n{_tool_call(call.function)}\n</tool_call>".lstrip("\n")
    return {"from": SHAREGPT_ROLES[message.role], "value": text}


def _tool_call(function: FunctionCall) -> str:
    """The call as JSON; arguments that aren't JSON, or nested too deeply, stay the text they were."""
    try:
        # json.loads takes NaN, which can't be written again: ValueError, too
        return _encoded(function.name, json.loads(function.arguments))
    except (ValueError, RecursionError):
        return _encoded(function.name, function.arguments)


def _encoded(name: str, arguments: JsonValue) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
