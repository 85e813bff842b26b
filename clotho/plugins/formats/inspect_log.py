"""A run as a log of Inspect, which its viewer and `inspect_ai.log.read_eval_log` open.

The log is a zip file: a header, a file for each sample, and summaries of them, which the viewer lists. A sample is
an item, and each of the item's rollouts an epoch of it.
"""

import json
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from pydantic import JsonValue

from clotho.evaluation.figures import Figures
from clotho.evaluation.recorded import (
    at,
    epoch_of,
    facts_of,
    finite,
    sample_name,
    sampled_turns,
    span_of,
    usage_of,
)
from clotho.evaluation.statistics import Estimate
from clotho.journal import Journal
from clotho.models.backend import Usage
from clotho.plugins.formats.inspect_messages import all_text, last_text, message_fields
from clotho.rollouts.item import Item
from clotho.rollouts.outcome import Ending, Limits, Outcome
from clotho.rollouts.run import RunManifest
from clotho.runs.disturbances import Disturbance
from clotho.runs.export import RecordedRollout, placed, recorded_groups

VERSION = 2
"""Of the log's format."""
SCORER = "reward"
STOPPED = {"stop": "stop", "tool_calls": "tool_calls", "length": "max_tokens"}
"""Finish reasons, and Inspect's words for them."""
LIMITS = {"max_turns": "turn", "max_sampled_tokens": "token", "max_active_seconds": "working"}
"""Limits, and Inspect's words for them."""
LISTED_CHARACTERS = 5_000
"""Characters of a sample's input that the viewer lists."""

Fields = dict[str, JsonValue]


async def write_inspect_log(
    journal: Journal,
    manifest: RunManifest,
    figures: Figures,
    output: Path,
    exclude: Collection[Disturbance] = (),
) -> int:
    """Write the run's scored rollouts to `output`, without those disturbed in a way to `exclude`; returns how many.

    The log's status is `error` where items have no score. The file appears whole or not at all.
    """
    summaries: list[Fields] = []
    with placed(output) as path, ZipFile(path, "w", ZIP_DEFLATED) as log:
        async for group, entry, kept in recorded_groups(journal, manifest.run, exclude):
            for read in kept:
                sample = _sample(sample_name(group, entry.item), entry.item, read, manifest)
                log.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
                summaries.append(_summary(sample, all_text(read.transcript.prompt.messages)))
        header = _header(manifest, figures, summaries)
        start = {name: header[name] for name in ("version", "eval", "plan")}
        log.writestr("_journal/start.json", json.dumps(start))
        log.writestr("summaries.json", json.dumps(summaries))
        log.writestr("header.json", json.dumps(header))
    return len(summaries)


def _sample(sample: str, item: Item, read: RecordedRollout, manifest: RunManifest) -> Fields:
    summary, transcript = read.summary, read.transcript
    asked = len(transcript.prompt.messages)
    messages = [message_fields(number, each) for number, each in enumerate(transcript.messages)]
    fields: Fields = {
        "id": sample,
        "epoch": epoch_of(summary),
        "uuid": summary.rollout,
        "input": [*messages[:asked]],
        "target": "",
        "messages": [*messages],
        "output": _output(read, manifest),
        "scores": {
            SCORER: {
                "value": summary.score,
                "answer": last_text(transcript.messages),
                "explanation": read.reward.log,
                "metadata": finite(read.reward.breakdown),
            }
        },
        "metadata": {"item": item, **facts_of(read)},
        "model_usage": {manifest.model: _usage(usage_of(transcript))},
        "working_time": summary.active_seconds,
        "turn_count": summary.turns,
    }
    if (limit := _limit(summary.ending, manifest.limits)) is not None:
        fields["limit"] = limit
    if (span := span_of(transcript)) is not None:
        first, last = span
        fields |= {"started_at": at(first), "completed_at": at(last), "total_time": last - first}
    return fields


def _output(read: RecordedRollout, manifest: RunManifest) -> JsonValue:
    """The last turn."""
    turns = sampled_turns(read.transcript)
    if not turns:
        return {"model": manifest.model}
    last = turns[-1]
    number = max(at for at, each in enumerate(read.transcript.messages) if each.role == "assistant")
    choice: Fields = {
        "message": message_fields(number, last.message),
        "stop_reason": STOPPED.get(last.finish_reason or "", "unknown"),
    }
    return {"model": last.model, "choices": [choice], "usage": _usage(last.usage), "time": last.seconds}


def _usage(usage: Usage) -> Fields:
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "input_tokens_cache_read": usage.cached_prompt_tokens,
    }


def _limit(ending: Ending, limits: Limits) -> Fields | None:
    """The limit that ended the rollout, if one did."""
    if ending.outcome is Outcome.CONTEXT_OVERFLOW:
        return {"type": "context", "limit": 0}
    if ending.outcome is not Outcome.LIMIT_REACHED:
        return None
    name = ending.limit or ""
    return {"type": LIMITS.get(name, "custom"), "limit": limits.model_dump().get(name) or 0}


def _summary(sample: Fields, asked: str) -> Fields:
    kept = ("id", "epoch", "uuid", "target", "scores", "model_usage", "working_time", "turn_count")
    times = ("started_at", "completed_at", "total_time")
    messages, limit = sample["messages"], sample.get("limit")
    assert isinstance(messages, list)
    return {name: sample[name] for name in (*kept, *times) if name in sample} | {
        "input": asked[:LISTED_CHARACTERS],
        "limit": limit["type"] if isinstance(limit, dict) else None,
        "completed": True,
        "message_count": len(messages),
    }


def _header(manifest: RunManifest, figures: Figures, summaries: list[Fields]) -> Fields:
    started = [str(each["started_at"]) for each in summaries if "started_at" in each]
    ended = [str(each["completed_at"]) for each in summaries if "completed_at" in each]
    missing = (
        f"{figures.items - figures.scored} of {figures.items} items have no score: {figures.failed or 'open'}"
    )
    header: Fields = {
        "version": VERSION,
        "status": "success" if figures.scored == figures.items else "error",
        "eval": _spec(manifest, figures, summaries, min(started, default=at(0))),
        "plan": {},
        "results": {
            "total_samples": figures.items * manifest.group_size,
            "completed_samples": len(summaries),
            "scores": [_score(manifest, figures, len(summaries))],
        },
        "stats": {
            "started_at": min(started, default=""),
            "completed_at": max(ended, default=""),
        },
    }
    if figures.scored < figures.items:
        header["error"] = {"message": missing, "traceback": missing, "traceback_ansi": missing}
    return header


def _spec(manifest: RunManifest, figures: Figures, summaries: list[Fields], created: str) -> Fields:
    sampling = manifest.sampling
    return {
        "eval_id": manifest.run,
        "run_id": manifest.run,
        "task_id": manifest.run,
        "created": created,
        "task": manifest.environment,
        "task_args": dict(manifest.environment_config),
        "dataset": {
            "name": manifest.environment,
            "samples": figures.items,
            "sample_ids": [*dict.fromkeys(str(each["id"]) for each in summaries)],
        },
        "model": manifest.model,
        "model_generate_config": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
        },
        "config": {
            "epochs": manifest.group_size,
            "turn_limit": manifest.limits.max_turns,
            "token_limit": manifest.limits.max_sampled_tokens,
        },
        "packages": {"clotho-rollouts": metadata.version("clotho-rollouts")},
        "metadata": {"seed": manifest.seed, "failed rollouts": dict(figures.failed)},
    }


def _score(manifest: RunManifest, figures: Figures, rollouts: int) -> Fields:
    estimates = {} if figures.reward is None else {"mean": figures.reward}
    estimates |= {f"pass@{k}": each for k, each in figures.pass_at.items()}
    estimates |= {f"pass^{k}": each for k, each in figures.pass_all.items()}
    values = {name: each.mean for name, each in estimates.items()} | figures.own
    return {
        "name": SCORER,
        "scorer": SCORER,
        "scored_samples": rollouts,
        "unscored_samples": figures.items * manifest.group_size - rollouts,
        "metrics": {
            name: {"name": name, "value": value, "metadata": _interval(estimates.get(name))}
            for name, value in values.items()
        },
    }


def _interval(estimate: Estimate | None) -> JsonValue:
    """The interval at 95 %, over items."""
    if estimate is None or not estimate.told:
        return None
    return {"low": estimate.low, "high": estimate.high}
