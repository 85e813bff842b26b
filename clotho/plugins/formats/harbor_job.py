"""A run as a job folder of Harbor: a trial for each scored rollout, with its trajectory and reward.

Rollouts without a reward are no trials, since Harbor's statistics would take them for 0: the job counts them as
pending.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from pydantic import JsonValue

from clotho.errors import InvalidInput
from clotho.evaluation.figures import Figures
from clotho.evaluation.recorded import at, epoch_of, facts_of, finite, sample_name, span_of, usage_of
from clotho.identifiers.keys import tools_key
from clotho.journal import Journal
from clotho.plugins.formats.atif import AGENT, trajectory
from clotho.rollouts.group import ToolManifest
from clotho.rollouts.item import Item
from clotho.rollouts.run import RunManifest
from clotho.runs.disturbances import Disturbance
from clotho.runs.export import RecordedRollout, recorded_groups

REWARD = "reward"

Fields = dict[str, JsonValue]


async def write_harbor_job(
    journal: Journal,
    manifest: RunManifest,
    figures: Figures,
    output: Path,
    exclude: Collection[Disturbance] = (),
) -> int:
    """Write the run's scored rollouts into the new folder `output`, without those disturbed in a way to `exclude`.

    Returns how many. The folder appears whole or not at all. Raises InvalidInput where it is there.
    """
    trials: list[Fields] = []
    with _new_folder(output) as folder:
        async for group, entry, kept in recorded_groups(journal, manifest.run, exclude):
            tools = await journal.read_required(tools_key(group), ToolManifest)
            for read in kept:
                trial = _trial(sample_name(group, entry.item), entry.item, read, manifest)
                _write_trial(folder / str(trial["trial_name"]), trial, read, tools, manifest)
                trials.append(trial)
        _write(folder / "config.json", _job_config(manifest, trials))
        _write(folder / "result.json", _job_result(manifest, figures, trials))
    return len(trials)


@contextmanager
def _new_folder(output: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `output` on success. Raises InvalidInput where that is there."""
    if output.exists():
        raise InvalidInput(f"{output} exists: give the path of a new folder")
    # beside the output: only within one file system can a folder be renamed
    folder = output.resolve().with_name(f".{output.name}.{os.getpid()}")
    folder.mkdir(parents=True)
    try:
        yield folder
        folder.rename(output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, value: JsonValue) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def _write_trial(
    folder: Path, trial: Fields, read: RecordedRollout, tools: ToolManifest, manifest: RunManifest
) -> None:
    _write(folder / "config.json", trial["config"])
    _write(folder / "result.json", trial)
    _write(folder / "agent" / "trajectory.json", trajectory(read, tools, manifest))
    _write(folder / "verifier" / "reward.json", _rewards(read))
    # logs may hold halves of characters, which UTF-8 has no bytes for
    (folder / "verifier" / "test-stdout.txt").write_text(read.reward.log, "utf-8", "backslashreplace")


def _trial(name: str, item: Item, read: RecordedRollout, manifest: RunManifest) -> Fields:
    """The result of a trial."""
    usage, trial = usage_of(read.transcript), f"{name}__{epoch_of(read.summary)}"
    task = f"{manifest.environment}/{name}"
    fields: Fields = {
        # not random: the same rollout has the same id in every export
        "id": str(uuid5(NAMESPACE_URL, read.summary.rollout)),
        "task_name": name,
        "trial_name": trial,
        "trial_uri": f"clotho:{read.summary.rollout}",
        "task_id": {"path": task},
        "source": manifest.environment,
        "task_checksum": hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest(),
        "config": {
            "task": {"path": task, "source": manifest.environment},
            "trial_name": trial,
            "agent": _agent(manifest),
            "job_id": _job_id(manifest),
        },
        "agent_info": {
            "name": AGENT,
            "version": metadata.version("clotho-rollouts"),
            "model_info": {"name": manifest.model},
        },
        "agent_result": {
            "n_input_tokens": usage.prompt_tokens,
            "n_cache_tokens": usage.cached_prompt_tokens,
            "n_output_tokens": usage.completion_tokens,
            "metadata": facts_of(read),
        },
        "verifier_result": {"rewards": _rewards(read)},
    }
    if (span := span_of(read.transcript)) is not None:
        first, last = map(at, span)
        fields |= {
            "started_at": first,
            "finished_at": last,
            "agent_execution": {"started_at": first, "finished_at": last},
        }
    return fields


def _rewards(read: RecordedRollout) -> Fields:
    return {**finite(read.reward.breakdown), REWARD: read.summary.score}


def _agent(manifest: RunManifest) -> Fields:
    return {"name": AGENT, "model_name": manifest.model}


def _job_id(manifest: RunManifest) -> str:
    return str(uuid5(NAMESPACE_URL, f"clotho:{manifest.run}:{manifest.fingerprint}"))


def _job_config(manifest: RunManifest, trials: list[Fields]) -> Fields:
    names = dict.fromkeys(str(each["task_name"]) for each in trials)
    return {
        "job_name": manifest.run,
        "n_attempts": manifest.group_size,
        "agents": [_agent(manifest)],
        "tasks": [
            {"path": f"{manifest.environment}/{name}", "source": manifest.environment} for name in names
        ],
    }


def _job_result(manifest: RunManifest, figures: Figures, trials: list[Fields]) -> Fields:
    started = [str(each["started_at"]) for each in trials if "started_at" in each]
    ended = [str(each["finished_at"]) for each in trials if "finished_at" in each]
    total = figures.items * manifest.group_size
    by_reward: dict[str, list[JsonValue]] = {}
    for each in trials:
        result = each["verifier_result"]
        assert isinstance(result, dict) and isinstance(result["rewards"], dict)
        by_reward.setdefault(str(result["rewards"][REWARD]), []).append(each["trial_name"])
    metrics: list[JsonValue] = [] if figures.reward is None else [{"mean": figures.reward.mean}]
    return {
        "id": _job_id(manifest),
        "started_at": min(started, default=at(0)),
        "updated_at": max(ended, default=at(0)),
        "finished_at": max(ended, default=None) if len(trials) == total else None,
        "n_total_trials": total,
        "stats": {
            "n_completed_trials": len(trials),
            "n_pending_trials": total - len(trials),
            "evals": {
                f"{AGENT}__{manifest.model}__{manifest.environment}": {
                    "n_trials": len(trials),
                    "metrics": metrics,
                    "pass_at_k": {str(k): each.mean for k, each in figures.pass_at.items()},
                    "reward_stats": {REWARD: {reward: [*names] for reward, names in by_reward.items()}},
                }
            },
            "n_input_tokens": _sum(trials, "n_input_tokens"),
            "n_cache_tokens": _sum(trials, "n_cache_tokens"),
            "n_output_tokens": _sum(trials, "n_output_tokens"),
        },
    }


def _sum(trials: list[Fields], name: str) -> int:
    results = [each["agent_result"] for each in trials]
    counts = [result[name] for result in results if isinstance(result, dict)]
    return sum(count for count in counts if isinstance(count, int))
