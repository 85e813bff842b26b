"""All workflows, for workers and replays."""

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.campaign import Campaign
from workflows.rollout import Rollout
from workflows.rollout_group import RolloutGroup

PINNED = (RolloutGroup, Rollout)
"""They finish on the version of the code that they began with."""
UPGRADED = (Campaign,)
"""They go on with the current version."""
WORKFLOWS = (*PINNED, *UPGRADED)


def strict_runner() -> SandboxedWorkflowRunner:
    """The SDK's sandbox for workflow code, which refuses clocks, randomness and I/O: for tests.

    Workers do without: the sandbox takes more time than the workflow code.
    """
    shared = SandboxRestrictions.default.with_passthrough_modules("clotho", "activities", "pydantic")
    return SandboxedWorkflowRunner(restrictions=shared)
