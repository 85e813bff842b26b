"""The groups' workflows: started or attached to by their ids, and left running when their waiter is cancelled."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from clotho.errors import ClothoError, GroupRejected, InvalidInput, Rejection, Unavailable
from clotho.failure_policy import DROP_REASONS, GroupAction, policy_for
from clotho.identifiers.keys import scored_key
from clotho.journal import Journal
from clotho.rollouts.failures import failures_within
from clotho.rollouts.group import GroupEntry, SiblingFailure
from clotho.rollouts.run import AdapterRunConfig, RunManifest
from clotho.runs.adapter_runs import start_work
from clotho.runs.ledger import Claim

LONGEST_PAUSE = 60.0
"""Seconds between two attempts at a group whose failure would hit every other group too."""

log = logging.getLogger("clotho.runs")


class GroupFailed(ClothoError):
    """A group's workflow ended without a scored group."""

    def __init__(self, failures: tuple[SiblingFailure, ...]) -> None:
        super().__init__(f"{failures[0].workflow}: {failures[0].reason}")
        self.invalid = next((each.reason for each in failures if each.kind == InvalidInput.__name__), None)
        """The fault in the run's own settings, if there is one: waiting doesn't change it."""
        self.policies = frozenset(policy_for(failure.kind) for failure in failures)

    @property
    def action(self) -> GroupAction:
        """Wait if any failure would hit every group; drop the group if all of them are to be dropped."""
        actions = {policy.group for policy in self.policies}
        if GroupAction.WAIT in actions:
            return GroupAction.WAIT
        return GroupAction.DROP if actions == {GroupAction.DROP} else GroupAction.RETRY

    @property
    def reason(self) -> Rejection:
        """Why the group is given up: the author's code before the infrastructure, and that before a cancel."""
        reasons = {policy.dropped_as for policy in self.policies}
        return next(reason for reason in DROP_REASONS if reason in reasons)


@dataclass(frozen=True)
class Groups:
    """Rolls out the items of one run."""

    client: Client
    journal: Journal
    manifest: RunManifest
    order: AdapterRunConfig
    attempts: int
    """Attempts at a group that fails for reasons of its own, before it is dropped."""
    waits_for_settings: bool = True
    """Whether a group of a run with invalid settings is tried again; else InvalidInput is raised."""

    async def scored(self, claim: Claim) -> GroupEntry | None:
        return await self.journal.read(scored_key(claim.group), GroupEntry)

    async def until_scored(self, claim: Claim, waiting: Callable[[str], None] | None = None) -> GroupEntry:
        """The scored group, however long it takes; the reason of each delay is logged, or given to `waiting`.

        Failures that would hit every group are retried. Raises GroupRejected when the group is dropped; cancelling
        doesn't stop the workflow.
        """
        waiting = waiting or partial(log.warning, "%s: %s", claim.group)
        failed = outages = 0
        while True:
            try:
                return await self._attempt(claim)
            except GroupFailed as failure:
                if failure.invalid is not None and not self.waits_for_settings:
                    raise InvalidInput(f"{claim.group}: {failure.invalid}") from failure
                # WAIT uses no attempt up: every other group would fail alike
                failed += failure.action is GroupAction.RETRY
                if failure.action is GroupAction.DROP or failed >= self.attempts:
                    raise GroupRejected(failure.reason, str(failure)) from failure
                waiting(str(failure))
            except (Unavailable, RPCError) as outage:
                waiting(str(outage))
            outages += 1
            # The exponent is bounded, too: an outage of a day has more attempts than a float has powers.
            await asyncio.sleep(min(2.0 ** min(outages - 1, 10), LONGEST_PAUSE))

    async def cancel(self, claim: Claim) -> None:
        """Ask the group's workflow to end; one that isn't there has ended. Raises RPCError for an outage."""
        try:
            await self.client.get_workflow_handle(claim.group).cancel()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def _attempt(self, claim: Claim) -> GroupEntry:
        # the store first: Temporal forgets a completed workflow after its retention, and would run it again
        if (entry := await self.scored(claim)) is not None:
            return entry
        try:
            request = self.order.group(self.manifest, claim.group, claim.number)
            await (await start_work(self.client, request)).result()
        # completed since the look above: its entry is there
        except WorkflowAlreadyStartedError:
            pass
        except WorkflowFailureError as error:
            raise GroupFailed(failures_within(claim.group, error)) from error
        return await self.journal.read_required(scored_key(claim.group), GroupEntry)
