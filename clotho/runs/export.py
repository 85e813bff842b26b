"""Scored groups as JSON lines, for supervised training and for reading."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from pydantic import JsonValue

from clotho.entries.group import GroupEntry, ToolManifest
from clotho.entries.rollout import RewardEntry
from clotho.identifiers import reward_key, tools_key
from clotho.inference.base import ChatMessage
from clotho.journal import Journal
from clotho.records.rollout import RolloutSummary
from clotho.runs.groups import scored_groups
from clotho.runs.manifest import read_manifest
from clotho.transcript import read_transcript

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
    journal: Journal, run: str, form: Format, output: Path, *, replacements: bool = True
) -> int:
    """Write the run's scored groups to `output`; returns the number of lines.

    A file appears whole or not at all; into a pipe or device lines go as they come. Raises InvalidInput for an
    unknown run.
    """
    lines = 0
    with placed(output) as path, path.open("w", encoding="utf-8") as file:
        async for line in export_lines(journal, run, form, replacements=replacements):
            file.write(line)
            lines += 1
    return lines


@contextmanager
def placed(output: Path) -> Iterator[Path]:
    """The file to write so that `output` appears whole or not at all: itself, where it is a pipe or device."""
    if output.exists() and not output.is_file():
        yield output
        return
    target = output.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


async def export_lines(
    journal: Journal, run: str, form: Format, *, replacements: bool = True
) -> AsyncIterator[str]:
    """The run's scored groups as lines of JSON, with or without rollouts that stand in for failed ones.

    Raises InvalidInput for an unknown run.
    """
    await read_manifest(journal, run)
    async for line in _lines(journal, run, form, replacements):
        yield json.dumps(line, ensure_ascii=False) + "\n"


async def _lines(journal: Journal, run: str, form: Format, replacements: bool) -> AsyncIterator[Line]:
    for group, entry in await scored_groups(journal, run):
        siblings = [one for one in entry.siblings if replacements or one.replacement_of is None]
        rollouts = [await _rollout(journal, group, entry, summary, form) for summary in siblings]
        if form is Format.GROUPS:
            if not rollouts:
                continue
            yield {
                "group": group,
                "item": entry.item,
                "toolsets": list(entry.toolsets),
                "scores": [summary.score for summary in siblings],
                "rollouts": list(rollouts),
                "repairs": [repair.model_dump(mode="json") for repair in entry.repairs],
            }
        else:
            for rollout in rollouts:
                yield rollout


async def _rollout(
    journal: Journal, group: str, entry: GroupEntry, summary: RolloutSummary, form: Format
) -> Line:
    transcript = await read_transcript(journal, summary.rollout, summary.turns)
    reward = await journal.require(reward_key(summary.rollout), RewardEntry)
    tools = await journal.require(tools_key(group), ToolManifest)
    line: Line = {
        "rollout": summary.rollout,
        "replacement_of": summary.replacement_of,
        "reward": summary.score,
        "reward_breakdown": dict(reward.breakdown),
        "reward_error": reward.error,
        "outcome": str(summary.ending.outcome),
        "limit": summary.ending.limit,
        "turns": summary.turns,
        "tool_errors": summary.tool_errors,
        "sampled_tokens": summary.sampled_tokens,
        "tools": [dict(tool.tool_schema) for tool in tools.tools],
    }
    if form is Format.SHAREGPT:
        line["conversations"] = [_sharegpt(message) for message in transcript.messages]
    else:
        line["messages"] = [dict(message.wire()) for message in transcript.messages]
    if form is not Format.GROUPS:
        line["group"] = group
        line["item"] = entry.item
    return line


def _sharegpt(message: ChatMessage) -> JsonValue:
    """Reasoning and tool calls become tagged text, as datasets of this format have them."""
    text = message.content if isinstance(message.content, str) else json.dumps(message.content or "")
    if message.role == "tool":
        text = f"<tool_response>\n{text}\n</tool_response>"
    if message.reasoning_content:
        text = f"<think>\n{message.reasoning_content}\n</think>\n{text}"
    for call in message.tool_calls:
        arguments = _parsed(call.function.arguments)
        block = json.dumps({"name": call.function.name, "arguments": arguments}, ensure_ascii=False)
        text = f"{text}\n<tool_call>\n{block}\n</tool_call>".lstrip("\n")
    return {"from": SHAREGPT_ROLES[message.role], "value": text}


def _parsed(arguments: str) -> JsonValue:
    """Arguments that aren't JSON stay the text that the model wrote."""
    try:
        parsed: JsonValue = json.loads(arguments)
    except ValueError:
        return arguments
    return parsed
