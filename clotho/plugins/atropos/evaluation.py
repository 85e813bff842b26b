"""An evaluation: a held-out set through the same durable path, under a run of its own."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from atroposlib.envs.base import EvalHandlingEnum

from clotho.environment.instances import EnvironmentProcesses
from clotho.errors import GroupRejected
from clotho.evaluation.figures import powers_of_two
from clotho.evaluation.own_metrics import own_metrics
from clotho.evaluation.statistics import mean_of_items, pass_at
from clotho.journal import Journal
from clotho.plugins.atropos.adapter_run import AdapterRun
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.atropos.run_setup import evaluation_manifest, with_run_settings
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.run import RunManifest
from clotho.runs.adapter_runs import open_adapter_run
from clotho.runs.ledger import Claim, Ledger
from clotho.runs.pauses import pause, reason_for, resume

PAUSED_FOR = "an evaluation"

log = logging.getLogger("clotho.plugins.atropos")

Metrics = dict[str, float]


class Evaluating(Protocol):
    """The parts of ClothoEnv that an evaluation uses."""

    config: ClothoEnvConfig
    curr_step: int
    serving: bool

    @property
    def adapter_run(self) -> AdapterRun: ...

    async def evaluate_log(self, metrics: Metrics, **options: Any) -> None: ...


async def evaluate_held_out(env: Evaluating) -> Metrics:
    """Roll the held-out set out and log mean, interval, pass@k and the environment's own metrics."""
    started = time.time()
    training = env.adapter_run.manifest.run
    manifest = evaluation_manifest(env.config, env.adapter_run.manifest.model, env.curr_step)
    manifest = with_run_settings(manifest, env.adapter_run.connections.settings, env.config)
    stops = env.serving and env.config.eval_handling == EvalHandlingEnum.STOP_TRAIN
    # STOP_TRAIN stops Atropos' workers alone: without a pause the workflows go on sampling
    async with paused(env.adapter_run.connections.journal, training) if stops else nullcontext():
        entries, failed = await roll_out_set(env, manifest)
    journal = env.adapter_run.connections.journal
    async with EnvironmentProcesses(journal) as environments:
        own = await own_metrics(journal, environments, manifest, entries)
    metrics = metrics_of(entries, failed, env.config.success_score)
    metrics |= {f"eval/{name}": value for name, value in own.items()}
    log.info("evaluation at step %s: %s", env.curr_step, metrics)
    await env.evaluate_log(
        metrics,
        start_time=started,
        end_time=time.time(),
        generation_parameters=manifest.sampling.model_dump(mode="json"),
        samples=[
            {"item": entry.item, "scores": [sibling.score for sibling in entry.siblings]} for entry in entries
        ],
    )
    return metrics


async def roll_out_set(env: Evaluating, manifest: RunManifest) -> tuple[list[GroupEntry], int]:
    """The scored groups of the held-out set, and how many failed for good."""
    journal = env.adapter_run.connections.journal
    await open_adapter_run(journal, manifest, env.adapter_run.endpoint, env.adapter_run.groups.order)
    ledger = Ledger(journal, manifest.run)
    claims = await ledger.load()
    if len(claims) < env.config.evaluation_groups:
        claims = await _draw(journal, ledger, manifest, claims, env.config.evaluation_groups)
    groups = replace(env.adapter_run.groups, manifest=manifest)
    free = asyncio.Semaphore(env.config.max_eval_workers)

    async def roll_out(claim: Claim) -> GroupEntry | None:
        async with free:
            try:
                return await groups.until_scored(claim)
            except GroupRejected as rejected:
                log.warning("%s is left out of the evaluation: %s", claim.group, rejected)
                return None

    entries = await asyncio.gather(*map(roll_out, claims))
    scored = [entry for entry in entries if entry is not None]
    return scored, len(entries) - len(scored)


def metrics_of(entries: list[GroupEntry], failed: int, success: float) -> Metrics:
    """Metrics of the scored groups; `failed` ones count as neither passed nor failed."""
    if not entries:
        return {"eval/groups": 0, "eval/groups_failed": failed}
    scores = [[sibling.score for sibling in entry.siblings] for entry in entries]
    estimate = mean_of_items(scores)
    siblings = [sibling for entry in entries for sibling in entry.siblings]
    metrics = {
        "eval/groups": len(entries),
        "eval/groups_failed": failed,
        "eval/mean": estimate.mean,
        "eval/turns_mean": sum(sibling.turns for sibling in siblings) / len(siblings),
        "eval/tool_errors_count": sum(sibling.tool_errors for sibling in siblings),
        **{f"eval/pass@{k}": pass_at(k, scores, success).mean for k in powers_of_two(min(map(len, scores)))},
    }
    if estimate.told:
        metrics |= {"eval/mean_ci95_low": estimate.low, "eval/mean_ci95_high": estimate.high}
    return metrics


@asynccontextmanager
async def paused(journal: Journal, run: str) -> AsyncIterator[None]:
    """Rollouts of `run` wait at their turns' boundaries meanwhile; a pause with another reason stays."""
    await pause(journal, run, PAUSED_FOR)
    try:
        yield
    finally:
        await end_pause(journal, run)


async def end_pause(journal: Journal, run: str) -> None:
    """Let the run go on where an evaluation held it, if only that of a process that died."""
    if await reason_for(journal, run) == PAUSED_FOR:
        await resume(journal, run)


async def _draw(
    journal: Journal, ledger: Ledger, manifest: RunManifest, claims: list[Claim], wanted: int
) -> list[Claim]:
    drawn = list(claims)
    async with (
        EnvironmentProcesses(journal) as environments,
        environments.enumeration(manifest) as environment,
    ):
        items = await environment.next_items(wanted)
    # the set is enumerated from its beginning: what an earlier process claimed comes first
    for item in items[len(claims) :]:
        drawn.append(await ledger.claim(item, 0))
    return drawn
