"""`process`: a run's groups into a file, several at a time; a second process goes on with the same file."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import wandb
from atroposlib.frontend.jsonl2html import generate_html

from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.atropos.group_sender import retry_outages

log = logging.getLogger("clotho.plugins.atropos")


class Processing(Protocol):
    """The parts of ClothoEnv that `process` uses."""

    config: Any
    n_groups_to_process: int
    max_num_workers: int
    curr_step: int

    async def setup(self) -> None: ...
    async def get_next_item(self) -> Any: ...
    async def collect_trajectories(self, item: Any) -> Any: ...
    async def postprocess_histories(self, trajectories: Any) -> Any: ...
    async def handle_send_to_api(
        self, scored_data: Any, item: Any, do_send_to_api: bool, abort_on_any_max_length_exceeded: bool
    ) -> None: ...
    async def wandb_log(self) -> None: ...


async def process_groups(env: Processing) -> None:
    """Write the first `n_groups_to_process` groups of the run, and a page that shows them."""
    await env.setup()
    env.curr_step = 0
    free = asyncio.Semaphore(max(env.max_num_workers, 1))
    with wandb_run(env.config, "process"):
        await _process_items(env, free)
    log.info("%s of %s groups written", env.curr_step, env.n_groups_to_process)
    path = env.config.data_path_to_save_groups
    if await asyncio.to_thread(lambda: Path(path).stat().st_size):
        await asyncio.to_thread(generate_html, path)


async def _process_items(env: Processing, free: asyncio.Semaphore) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(env.n_groups_to_process):
            await free.acquire()
            if (item := await env.get_next_item()) is None:
                break
            task = tasks.create_task(_process(env, item))
            task.add_done_callback(lambda _: free.release())


async def _process(env: Processing, item: Any) -> None:
    trajectories, _ = await retry_outages(lambda: env.collect_trajectories(item), "read a group")
    if trajectories is not None:
        trajectories = await env.postprocess_histories(trajectories)
    if trajectories is None:
        return
    await env.handle_send_to_api(trajectories, item, False, False)
    await env.wandb_log()
    env.curr_step += 1


@contextmanager
def wandb_run(config: ClothoEnvConfig, command: str) -> Iterator[None]:
    """Keep a wandb run open, and write all of it before the body counts as done.

    Atropos asks for one by default; without a key for wandb, say so and go on.
    """
    if not config.use_wandb:
        yield
        return
    stamp = datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    name = f"{config.wandb_name or config.run}-{command}-{stamp}"
    try:
        run = wandb.init(name=name, config=config.model_dump(mode="json"))
    except wandb.errors.UsageError as refused:
        log.warning("no wandb run, results are in files only: %s", refused)
        yield
        return
    with run:
        yield


class GroupFile:
    """Appends each group once. Opening it cuts off a line that a dying process left unfinished."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self.written: set[str] = set()
        self._file.seek(0)
        end = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            end += len(line)
            self.written.add(json.loads(line).get("group_id", ""))
        self._file.truncate(end)

    def write(self, group: dict[str, Any]) -> None:
        """Write the group unless the file has it."""
        name = group["group_id"]
        if name in self.written:
            return
        self._file.write(json.dumps(group, ensure_ascii=False).encode() + b"\n")
        # no fsync: the journal has the groups, and the next `process` writes those that the file lacks
        self._file.flush()
        self.written.add(name)

    def close(self) -> None:
        self._file.close()
