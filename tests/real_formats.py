"""Exports of a run read by the programs whose formats they are, Inspect and Harbor: `make test-formats`.

Not part of the suite: it needs interpreters with `inspect_ai` and `harbor` (`INSPECT` and `HARBOR`: their paths).
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clotho.evaluation.figures import figures_of
from clotho.evaluation.results import RunResults, read_results
from clotho.plugins.formats.harbor_job import write_harbor_job
from clotho.plugins.formats.inspect_log import write_inspect_log
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import ONE_FILE

WORDS = Script(
    conversations=(
        Conversation(
            variants=tuple(
                (
                    ScriptedTurn(
                        reasoning="Hm.",
                        calls=(
                            ScriptedCall(name="terminal", arguments={"command": f"echo -n {score} > score"}),
                            ScriptedCall(name="terminal", arguments="no JSON"),
                            ScriptedCall(name="read_file", arguments="[1]"),
                        ),
                    ),
                    ScriptedTurn(content="Done \x1b[31m\u202e."),
                )
                for score in (1.0, 0.0)
            )
        ),
    )
)
READ_LOG = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log(sys.argv[1])
print(json.dumps({
    "status": log.status,
    "mean": log.results.scores[0].metrics["mean"].value,
    "samples": sorted([each.id, each.epoch, each.scores["reward"].value] for each in log.samples),
    "roles": [each.role for each in log.samples[0].messages],
    "text": log.samples[0].output.completion,
    "errors": [bool(each.parse_error) for each in log.samples[0].messages[1].tool_calls],
    "listed": len(read_eval_log_sample_summaries(sys.argv[1])),
}))
"""
READ_JOB = """
import json, sys
from pathlib import Path
from harbor.models.job.result import JobStats
from harbor.utils.trajectory_validator import TrajectoryValidator
from harbor.viewer.scanner import JobScanner
job = Path(sys.argv[1])
scanner, validator = JobScanner(job.parent), TrajectoryValidator()
trials = scanner.list_trials(job.name)
results = [scanner.get_trial_result(job.name, name) for name in trials]
computed = JobStats.from_trial_results(results)
told = scanner.get_job_result(job.name).stats
print(json.dumps({
    "config": scanner.get_job_config(job.name).job_name,
    "rewards": [each.verifier_result.rewards for each in results],
    "valid": [validator.validate(job / name / "agent" / "trajectory.json") for name in trials],
    "errors": validator.errors,
    "trials": [computed.n_completed_trials, told.n_completed_trials],
    "tokens": [computed.n_output_tokens, told.n_output_tokens],
    "evals": list(computed.evals) == list(told.evals),
}))
"""


@pytest.fixture(scope="module")
async def results(cluster: Cluster) -> AsyncIterator[RunResults]:
    async with serving(ScriptedModel(WORDS)) as url:
        handle = await cluster.start("exchanged", url, environment=ONE_FILE, groups=2, group_size=2)
        await handle.result()
        yield await read_results(cluster.open_journal(), "exchanged")


async def read_by(interpreter: str, program: str, path: Path) -> Any:
    """The JSON that `program` prints of `path`."""
    process = await asyncio.create_subprocess_exec(
        interpreter, "-c", program, str(path), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


async def test_inspect_reads_the_log(results: RunResults, cluster: Cluster, tmp_path: Path) -> None:
    log, journal = tmp_path / "exchanged.eval", cluster.open_journal()
    await write_inspect_log(journal, results.manifest, figures_of(results), log)
    assert await read_by(os.environ["INSPECT"], READ_LOG, log) == {
        "status": "success",
        "mean": 0.5,
        "samples": [["g000000", 1, 1.0], ["g000000", 2, 0.0], ["g000001", 1, 1.0], ["g000001", 2, 0.0]],
        "roles": ["user", "assistant", "tool", "tool", "tool", "assistant"],
        "text": "Done \x1b[31m\u202e.",
        "errors": [False, True, True],
        "listed": 4,
    }


async def test_harbor_reads_the_job(results: RunResults, cluster: Cluster, tmp_path: Path) -> None:
    job, journal = tmp_path / "exchanged", cluster.open_journal()
    await write_harbor_job(journal, results.manifest, figures_of(results), job)
    read = await read_by(os.environ["HARBOR"], READ_JOB, job)
    tokens = read.pop("tokens")
    assert tokens[0] == tokens[1]
    assert read == {
        "config": "exchanged",
        "rewards": [{"reward": 1.0}, {"reward": 0.0}] * 2,
        "valid": [True] * 4,
        "errors": [],
        "trials": [4, 4],
        "evals": True,
    }
