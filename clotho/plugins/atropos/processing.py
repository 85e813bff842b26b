"""`process`: a run's groups into a file, several at a time; a second process goes on with the same file."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Protocol

from atroposlib.frontend.jsonl2html import generate_html

from clotho.plugins.atropos.group_sender import retry_outages
from clotho.plugins.atropos.wandb_run import wandb_run

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
