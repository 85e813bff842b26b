"""Temporal, where it answers: states of workflows, links to its page, and operations."""

import asyncio
import time

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from clotho.config import TemporalSettings
from clotho.errors import InvalidInput
from clotho.temporal.connection import connect
from clotho.temporal.search_attributes import run_link, workflow_link
from clotho.temporal.states import describe

ANSWER_SECONDS = 2.0
AGAIN_SECONDS = 15.0
"""After which a server that didn't answer is asked again."""


class Workflows:
    """A Temporal namespace that need not be there."""

    def __init__(self, settings: TemporalSettings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._failed = float("-inf")
        self._connecting = asyncio.Lock()

    async def client(self, patience_seconds: float | None = None) -> Client | None:
        """The connection; without `patience_seconds`, a server that just failed to answer isn't asked again."""
        async with self._connecting:
            failed = patience_seconds is None and time.monotonic() - self._failed < AGAIN_SECONDS
            if self._client is None and not failed:
                try:
                    async with asyncio.timeout(patience_seconds or ANSWER_SECONDS):
                        self._client = await connect(self._settings)
                except (InvalidInput, TimeoutError):
                    self._failed = time.monotonic()
        return self._client

    async def state(self, workflow: str) -> str | None:
        """One word on a workflow's last execution; None where Temporal can't tell."""
        if (client := await self.client()) is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):  # the client itself tries again for ever
                described = await describe(client, workflow)
        except (RPCError, TimeoutError):
            return None
        if described is None or described.status is None:
            return None
        return (
            "running"
            if described.status is WorkflowExecutionStatus.RUNNING
            else described.status.name.lower()
        )

    def link(self, workflow: str) -> str:
        return workflow_link(self._settings.ui, self._namespace, workflow)

    def run_link(self, run: str) -> str:
        return run_link(self._settings.ui, self._namespace, run)

    @property
    def _namespace(self) -> str:
        known = self._client.namespace if self._client is not None else self._settings.namespace
        return known or "default"
