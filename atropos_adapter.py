"""Atropos' BaseEnv around an environment, with Atropos' own command line: serve | process | evaluate.

    python atropos_adapter.py serve --env.environment file_tasks --openai.base_url http://host:8000/v1 …

An environment of the in-memory design derives from HermesAgentBaseEnv and runs as its own program.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.worker import Worker

from activities.groups import Groups
from activities.restore import Restorer
from activities.reward import Verifier
from activities.rollouts import Rollouts
from activities.sandbox import Sandboxes
from clotho.atropos.by_hand import HermesAgentLoop, ToolContext
from clotho.atropos.config import ClothoEnvConfig
from clotho.atropos.env import ClothoEnv
from clotho.atropos.ported import HermesAgentEnvConfig, OneInstance, PortedEnv
from clotho.environment import AgentResult
from clotho.processes.presence import is_present
from clotho.sandbox.base import Labels
from clotho.sandbox.local import LocalBackend
from clotho.toolsets.dispatch import Dispatcher
from clotho.toolsets.registry import Registry

__all__ = [
    "AgentResult",
    "ClothoEnv",
    "ClothoEnvConfig",
    "HermesAgentBaseEnv",
    "HermesAgentEnvConfig",
    "HermesAgentLoop",
    "ToolContext",
]

log = logging.getLogger("clotho.atropos")


class HermesAgentBaseEnv(PortedEnv):
    """An environment of the in-memory design: `format_prompt` and `compute_reward` run on this instance.

    Its sandboxes are on its own host, where a worker with the role tools runs beside it.
    """

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with super().opened(), self._worker():
            await self._look_for_host()
            try:
                yield
            finally:
                await self.hand.close()

    async def _look_for_host(self) -> None:
        queue = self.durable.groups.order.stations.sandbox.queue
        if not await is_present(self.durable.connections.journal, queue):
            log.warning(
                "rollouts wait for a worker with the role tools on this host: nobody serves %s", queue
            )

    def _worker(self) -> Worker:
        """What serves this environment's queue."""
        connected = self.durable.connections
        settings, client, journal = connected.settings, connected.client, connected.journal
        registry, environments = Registry.discover(), OneInstance(self)
        dispatcher = Dispatcher(registry)
        backend = LocalBackend(settings.sandbox.folder_of(journal.store_identity))
        labels = Labels(
            store=journal.store_identity,
            cluster=client.service_client.config.target_host,
            namespace=client.namespace,
            rollout="",
        )
        stations = self.durable.groups.order.stations
        restorer = Restorer(journal, backend, dispatcher, labels)
        sandboxes = Sandboxes(journal, backend, restorer, stations.sandbox.queue)
        groups = Groups(journal, environments, registry, client)
        rollouts = Rollouts(journal)
        return Worker(
            client,
            task_queue=stations.environment.queue,
            activities=[
                groups.find_scored,
                groups.prepare_group,
                groups.conclude_group,
                groups.repair_sibling,
                groups.keep_attempt,
                groups.await_closed,
                rollouts.find_end,
                rollouts.conclude,
                Verifier(journal, environments, sandboxes, registry, dispatcher).verify,
            ],
            max_concurrent_activities=settings.worker.max_tool_calls,
        )


if __name__ == "__main__":
    ClothoEnv.cli()
