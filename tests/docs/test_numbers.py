"""Numbers in the documentation are those of the code."""

import re

import pytest

from activities.ttl_cache import FRESH_SECONDS
from clotho.environment import EnvironmentConfig
from clotho.environment.functions import MOST_STATE_CHARS
from clotho.failure_policy import ENVIRONMENT_ATTEMPTS
from clotho.listeners.bodies import BYTES_PER_CONTAINER, BYTES_PER_VALUE
from clotho.models.answers import MOST_TOKENS
from clotho.models.provider_errors import LONGEST_WAIT
from clotho.plugins.atropos.api.queue import MOST_REGISTERED, MOST_WAITING
from clotho.plugins.atropos.api.sent import MOST_ROWS
from clotho.plugins.atropos.api_settings import AtroposApiSettings
from clotho.plugins.atropos.env import LAST_DELIVERIES
from clotho.processes.liveness import LIVENESS_SECONDS
from clotho.rollouts.task_queues import TaskQueues
from clotho.sandbox import reaper
from clotho.sandbox.local.bubblewrap import VERIFIER_TMP
from clotho.sandbox.local.disk import RESERVE_MB, RESERVED_FILES
from clotho.tools import arguments, execute_code
from clotho.tools.files import fuzzy
from clotho.tools.output import OUTPUT_CHARS
from clotho.worker_settings import WorkerSettings
from tests.docs.markdown import text_of
from workflows.sandbox_session import MOST_LOSSES
from workflows.steps import QUEUE_TIMEOUT

MIB = 1 << 20
API, WORKER, QUEUES = AtroposApiSettings(), WorkerSettings(), TaskQueues()
HOURS = sorted(
    queue.schedule_to_close_timeout.total_seconds() / 3600
    for queue in (QUEUES.model, QUEUES.environment, QUEUES.sandbox)
)
WORDS = {2: "two", 3: "three", 10: "ten", 60: "a minute", 3_600: "an hour", 10**9: "10⁹"}


def word(number: float) -> str:
    return WORDS[int(number)]


CLAIMS = (
    ("docs/durability.md", f"last {word(WORKER.write_ahead_seconds)} seconds of a turn"),
    ("docs/architecture.md", f"retry, {ENVIRONMENT_ATTEMPTS} attempts"),
    ("docs/architecture.md", f"once {word(reaper.PERIOD_SECONDS)}"),
    ("docs/atropos.md", f"has {LAST_DELIVERIES:g} s for what is on its way"),
    ("docs/atropos.md", f"{LIVENESS_SECONDS:g} s without a heartbeat"),
    ("docs/atropos.md", f"step after {FRESH_SECONDS:g} s at the latest"),
    ("docs/atropos_api.md", f"sent | {API.max_body_bytes // MIB} MiB"),
    ("docs/atropos_api.md", f"decompressed | {API.max_unpacked_bytes // MIB} MiB"),
    ("docs/atropos_api.md", f"until a body is there | {API.body_seconds:g}"),
    ("docs/atropos_api.md", f"wait for the trainer | {MOST_WAITING:,}"),
    ("docs/atropos_api.md", f"environments, and trainers | {MOST_REGISTERED:,}"),
    ("docs/atropos_api.md", f"group sizes must be from 1 to {MOST_ROWS:,}"),
    (
        "docs/atropos_api.md",
        f"every {BYTES_PER_VALUE} bytes, and one list or object for every {BYTES_PER_CONTAINER}",
    ),
    ("docs/durability.md", f"at the latest after {WORKER.write_ahead_seconds:g} s"),
    ("docs/tools.md", f"{arguments.MAX_CHARS:,} characters and {arguments.MAX_VALUES:,} values"),
    ("docs/tools.md", f"files to patch {fuzzy.MAX_CHARS:,} bytes together"),
    ("docs/durability.md", f"takes the task for {QUEUE_TIMEOUT.total_seconds():g} s"),
    ("docs/durability.md", f"silent in the store for {LIVENESS_SECONDS:g} s"),
    ("docs/durability.md", f"more than {word(MOST_LOSSES)} losses"),
    ("docs/tools.md", f"At most {execute_code.MOST_CALLS} calls and {execute_code.SECONDS:g} seconds"),
    ("docs/tools.md", f"shown {OUTPUT_CHARS:,} characters"),
    ("docs/tools.md", f"and {execute_code.STDERR_CHARS:,} of what goes"),
    ("docs/how-to/own-tools.md", f"at most {MOST_STATE_CHARS:,} characters"),
    ("docs/how-to/cluster.md", f"{HOURS[0]:g} to {HOURS[-1]:g} hours"),
    ("docs/how-to/cluster.md", f"silent for {LIVENESS_SECONDS:g} s"),
    ("docs/how-to/environment.md", f"After {word(ENVIRONMENT_ATTEMPTS)} attempts"),
    ("docs/models.md", f"more than {WORKER.model_answer_mb} MiB"),
    ("docs/models.md", f"`max_calls_per_turn` ({EnvironmentConfig().max_calls_per_turn})"),
    ("docs/models.md", f"above {word(MOST_TOKENS)}"),
    ("docs/models.md", f"at most {word(LONGEST_WAIT.total_seconds())}"),
    ("docs/verifiers.md", f"{VERIFIER_TMP // MIB} MB"),
    ("docs/verifiers.md", f"{RESERVE_MB} MB and {RESERVED_FILES} inodes"),
)


@pytest.mark.parametrize(("page", "claim"), CLAIMS)
def test_a_number_is_the_code_s(page: str, claim: str) -> None:
    assert claim in re.sub(r"\s+", " ", text_of(page))
