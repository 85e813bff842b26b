"""Clotho and Harbor's own runner solve the same task folders in containers, by the tasks' oracles.

python -m benchmarks.task_folders

The `harbor` command is looked for on the path: `pip install harbor podman-compose`, with Python 3.12 or later.
Neither side's start counts: Clotho's services run already, and Harbor tells when its job begins and ends.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from benchmarks.commands import sandbox_root
from benchmarks.table import Row
from clotho.config import environment_without, load_settings
from clotho.embedded.services import ephemeral_services
from clotho.environment.instances import EnvironmentProcesses
from clotho.errors import ClothoError
from clotho.host import program_on_path
from clotho.identifiers.ids import group_id
from clotho.identifiers.keys import scored_key
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.group import GroupEntry
from clotho.runs.campaigns import start_campaign
from clotho.runs.request import RunRequest, run_manifest
from tests.containers import NoEngine, container_engine
from tests.machine_image import IMAGE, machine_image

TASKS, AT_ONCE = 10, 4
WHAT = f"{TASKS} task folders, oracle, {AT_ONCE} at once"
RUN = "oracles"
JOB = "oracles"


class HarborFailed(ClothoError):
    """Harbor didn't solve every task; the message is the end of its output."""


async def measure() -> list[Row]:
    with sandbox_root() as root, ExitStack() as stack:
        try:
            stack.enter_context(container_engine(root / "engine"))
        except NoEngine as reason:
            return [Row(WHAT, f"not run here: {reason}")]
        machine_image()
        _write_tasks(root / "tasks")
        rows = [Row(f"{WHAT}: Clotho", _per_minute(await _clotho(root)), "side by side")]
        if (harbor := program_on_path("harbor")) is None:
            return [*rows, Row(f"{WHAT}: Harbor", "not run here: no `harbor` command is on the path")]
        return [*rows, Row(f"{WHAT}: Harbor", _per_minute(await _harbor(harbor, root)), "side by side")]


def _per_minute(seconds: float) -> str:
    return f"{60 * TASKS / seconds:.0f} tasks/min"


def _write_tasks(folder: Path) -> None:
    for number in range(TASKS):
        files = {
            "task.toml": f'[environment]\ndocker_image = "{IMAGE}"\n',
            "instruction.md": f"Write the sum of 1 and {number} into sum.txt.\n",
            "environment/docker-compose.yaml": "services:\n  main:\n    network_mode: none\n",
            "solution/solve.sh": f"#!/bin/bash\necho {number + 1} > sum.txt\n",
            "tests/test.sh": "#!/bin/bash\n"
            f'[ "$(cat sum.txt)" = {number + 1} ]; echo $((! $?)) > /logs/verifier/reward.txt\n',
        }
        for name, text in files.items():
            path = folder / f"sum-{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)


async def _clotho(root: Path) -> float:
    """Seconds from the start of a run of all tasks to its end."""
    manifest = run_manifest(
        "task_folders",
        RUN,
        "oracle",
        agent=Agent(kind=AgentKind.ORACLE),
        overrides={"path": str(root / "tasks")},
        group_size=1,
    )
    async with EnvironmentProcesses() as environments, environments.enumeration(manifest) as environment:
        items = await environment.next_items(TASKS)
    request = RunRequest(manifest=manifest, endpoint=None, groups=TASKS, max_open_groups=AT_ONCE, items=items)
    async with ephemeral_services(load_settings(), with_model=False) as services:
        clock = time.perf_counter()
        await (await start_campaign(services.client, services.journal, request)).result()
        seconds = time.perf_counter() - clock
        for number in range(TASKS):
            entry = await services.journal.read_required(scored_key(group_id(RUN, number)), GroupEntry)
            assert entry.siblings[0].score == 1.0
    return seconds


async def _harbor(harbor: Path, root: Path) -> float:
    """Seconds of Harbor's job; raises HarborFailed unless it earns 1 on every task."""
    process = await asyncio.create_subprocess_exec(
        *(harbor, "run", "--path", root / "tasks", "--agent", "oracle", "--env", "podman"),
        *(
            "--n-concurrent",
            str(AT_ONCE),
            "--jobs-dir",
            root / "jobs",
            "--job-name",
            JOB,
            "--yes",
            "--no-delete",
        ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            **environment_without(()),
            **_engine_variables(root / "engine"),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )
    output, _ = await process.communicate()
    try:
        job = json.loads((root / "jobs" / JOB / "result.json").read_text())
        (evaluation,) = job["stats"]["evals"].values()
        assert evaluation["n_trials"] == TASKS and evaluation["n_errors"] == 0
        assert evaluation["metrics"][0]["mean"] == 1.0
        begun, ended = (datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at"))
    except (OSError, ValueError, KeyError, IndexError, AssertionError) as error:
        raise HarborFailed(output.decode(errors="replace")[-2_000:]) from error
    return (ended - begun).total_seconds()


def _engine_variables(folder: Path) -> Mapping[str, str]:
    """Variables with which podman's command line finds the images of the podman that was started here, if any."""
    files = {"CONTAINERS_STORAGE_CONF": "storage.conf", "CONTAINERS_CONF": "containers.conf"}
    return {name: str(folder / file) for name, file in files.items() if (folder / file).exists()}


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:64}{row.figure:72}{row.aim}")  # noqa: T201
