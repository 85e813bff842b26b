"""Notices of runs that can't be given: the last failure of each."""

import asyncio
from collections.abc import Sequence

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError

from clotho.escaping import truncate_middle
from clotho.identifiers.ids import run_of
from clotho.temporal.failures import failure_of
from clotho.temporal.search_attributes import NOTICE, RUN
from clotho.temporal.states import describe

LOOKED_AT = 50
SHOWN = 10
REASON_CHARACTERS = 300
PATIENCE_SECONDS = 5.0


async def failing_notices(client: Client, runs: Sequence[str]) -> list[str]:
    """A line for each of the runs' latest notices that failed for good, or fail and are tried again."""
    given = f"WorkflowType = '{NOTICE}' AND ExecutionStatus IN ('Running', 'Failed')"
    # a run's name has no quotes
    query = f"{given} AND {RUN} = '{runs[0]}'" if len(runs) == 1 else given
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):  # the client itself tries again for ever
            found = [each async for each in client.list_workflows(query, limit=LOOKED_AT)]
            own = [each for each in found if run_of(each.id) in runs]
            lines = await asyncio.gather(*(_failing(client, each) for each in own))
    # a warning beside the status, which is shown without it
    except (RPCError, TimeoutError):
        return []
    said = [line for each in lines for line in each]
    more = [f"{len(said) - SHOWN} further notices fail"] if len(said) > SHOWN else []
    return said[:SHOWN] + more


async def _failing(client: Client, notice: WorkflowExecution) -> list[str]:
    if notice.status is WorkflowExecutionStatus.FAILED:
        failure = await failure_of(client, notice)
        return [] if failure is None else [f"notice {notice.id} given up: {_short_reason(failure.message)}"]
    described = await describe(client, notice.id)
    pending = described.raw_description.pending_activities if described is not None else ()
    return [
        f"notice {notice.id}: attempt {step.attempt}: {_short_reason(step.last_failure.message)}"
        for step in pending
        if step.HasField("last_failure")
    ]


def _short_reason(reason: str) -> str:
    return truncate_middle(" ".join(reason.split()), REASON_CHARACTERS)
