"""The number of a host's sandboxes in each state, looked up now and then."""

import asyncio
import logging
import time
from collections import Counter

from clotho.errors import ClothoError
from clotho.monitoring.metrics import Metrics
from clotho.sandbox.backend import SandboxBackend

PERIOD_SECONDS = 10.0

log = logging.getLogger("clotho")


class SandboxCounts:
    """Shows them as a metric until cancelled; while a backend doesn't answer, the last ones stay."""

    def __init__(self, backend: SandboxBackend, metrics: Metrics) -> None:
        self._backend = backend
        self._metrics = metrics

    async def run(self) -> None:
        while True:
            try:
                self._metrics.show_sandboxes(await self._states())
            except ClothoError as error:
                log.info("sandboxes not counted: %s", error)
            await asyncio.sleep(PERIOD_SECONDS)

    async def _states(self) -> Counter[str]:
        now, states = time.time(), Counter(held=0, expired=0)
        for lease in await self._backend.leases():
            states["held" if lease.expires > now else "expired"] += 1
        return states
