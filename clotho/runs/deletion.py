"""Deleting a run: its workflows' histories first, then its journal."""

import asyncio

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus

from clotho.errors import InvalidInput
from clotho.identifiers.keys import deleted_key, manifest_key
from clotho.journal import Journal
from clotho.runs.manifest import Deleted, read_manifest, refuse_store_within
from clotho.temporal.search_attributes import NOTICE, RUN
from clotho.temporal.states import ignore_unknown, is_ending

PERIOD_SECONDS = 0.2


async def delete_run(journal: Journal, client: Client, run: str) -> int:
    """Delete a run that has ended; returns the number of journal entries. A deletion that was cut off is repeated.

    Its name stays taken: workers may remember entries of it, and Temporal workflows. Raises InvalidInput for a run
    that isn't there, or still runs, and where another store has been made among its keys.
    """
    await read_manifest(journal, run)
    await refuse_store_within(journal, run)
    await _delete_histories(client, run)
    # before anything is deleted: a start of that name in between is refused
    await journal.write(deleted_key(run), Deleted(run=run))
    keys = await journal.keys(f"{run}/")
    await journal.delete(keys)
    # Last, so that what was cut off is still a run and can be deleted again.
    await journal.delete([manifest_key(run)])
    return len(keys) + 1


async def _delete_histories(client: Client, run: str) -> None:
    """Delete histories until visibility, which lags, lists none; a notice that is being sent is left to end."""
    ended_or_work = f"{RUN} = '{run}' AND (WorkflowType != '{NOTICE}' OR ExecutionStatus != 'Running')"
    while True:
        listed = [found async for found in client.list_workflows(ended_or_work)]
        running = [found.id for found in listed if found.status is WorkflowExecutionStatus.RUNNING]
        # visibility lags: what it lists as running may be ending, and is waited for
        if running and not await is_ending(client, running[0]):
            raise InvalidInput(
                f"run {run} is running ({len(running)} workflows, {running[0]} among them): "
                f"`clotho cancel {run}` first"
            )
        if not listed:
            return
        for found in listed:
            if found.id not in running:
                await _delete_history(client, found.id, found.run_id)
        await asyncio.sleep(PERIOD_SECONDS)


async def _delete_history(client: Client, workflow: str, execution: str) -> None:
    request = DeleteWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow, run_id=execution),
    )
    with ignore_unknown():  # listed still, and gone
        await client.workflow_service.delete_workflow_execution(request)
