"""Atropos' BaseEnv around an environment, with Atropos' own command line: serve | process | evaluate.

    python atropos_adapter.py serve --env.environment file_tasks --openai.base_url http://host:8000/v1 …

An environment of the in-memory design derives from HermesAgentBaseEnv and runs as its own program.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from clotho.environment import AgentResult
from clotho.plugins.atropos.compat.config import HermesAgentEnvConfig
from clotho.plugins.atropos.compat.environment import CompatEnv, SingletonEnvironments
from clotho.plugins.atropos.compat.manual_rollouts import HermesAgentLoop, ToolContext
from clotho.plugins.atropos.compat.tasks import (
    ToolExecutor,
    cleanup_all_environments,
    cleanup_vm,
    clear_task_env_overrides,
    register_task_env_overrides,
)
from clotho.plugins.atropos.compat.tool_budget import BudgetConfig
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.atropos.env import ClothoEnv
from clotho.processes.liveness import Presence

__all__ = [
    "AgentResult",
    "BudgetConfig",
    "ClothoEnv",
    "ClothoEnvConfig",
    "HermesAgentBaseEnv",
    "HermesAgentEnvConfig",
    "HermesAgentLoop",
    "ToolContext",
    "cleanup_all_environments",
    "cleanup_vm",
    "clear_task_env_overrides",
    "register_task_env_overrides",
]

log = logging.getLogger("clotho.plugins.atropos")

# unused here: environments of the in-memory design shut it down at their end
_tool_executor = ToolExecutor()


class HermesAgentBaseEnv(CompatEnv):
    """An environment of the in-memory design: `format_prompt` and `compute_reward` run on this instance.

    Its sandboxes are on its own host, where a worker with the role tools runs beside it.
    """

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with super().opened(), await self._worker():
            await self._look_for_host()
            try:
                yield
            finally:
                await self.manual_rollouts.close()

    async def _look_for_host(self) -> None:
        queue = self.adapter_run.groups.order.task_queues.sandbox.queue
        if not await self._presence().serves(queue):
            log.warning(
                "rollouts wait for a worker with the role tools on this host: nobody serves %s", queue
            )

    def _presence(self) -> Presence:
        from clotho.temporal.states import served_namespace

        connected = self.adapter_run.connections
        return Presence(connected.journal, served_namespace(connected.client))

    async def _worker(self) -> AbstractAsyncContextManager[object]:
        """The worker of this environment's queue."""
        # Imported here: an adapter of an environment that workers serve starts sooner without.
        from temporalio.worker import Worker

        from activities.host import Host
        from clotho.sandbox.registry import open_backend
        from clotho.temporal.states import namespace_labels

        connected = self.adapter_run.connections
        task_queues = self.adapter_run.groups.order.task_queues
        folder = connected.settings.sandbox.folder_of(connected.journal.store_identity)
        host = Host(
            connected.client,
            connected.journal,
            open_backend(connected.settings, folder),
            SingletonEnvironments(self),
            task_queues.sandbox.queue,
            task_queues.environment.queue,
            connected.metrics,
            await namespace_labels(connected.client, connected.journal.store_identity),
            self._presence(),
        )
        return Worker(
            connected.client,
            task_queue=task_queues.environment.queue,
            activities=(*host.of_groups, *host.of_verification),
            max_concurrent_activities=self.config.tool_pool_size,
        )


def main() -> None:
    ClothoEnv.cli()


if __name__ == "__main__":
    main()
