"""All workflows: what workers serve, and what recorded histories replay with."""

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.campaign import Campaign
from workflows.rollout import Rollout
from workflows.rollout_group import RolloutGroup

PINNED = (RolloutGroup, Rollout)
"""They end on the version of the code that they began with."""
UPGRADED = (Campaign,)
"""They go on with the current version."""
WORKFLOWS = (*PINNED, *UPGRADED)


def strict_runner() -> SandboxedWorkflowRunner:
    """Workflow code of each workflow's own, in which clocks, randomness and I/O are refused: for the tests.

    Workers do without: the sandbox takes more time than what runs in it.
    """
    shared = SandboxRestrictions.default.with_passthrough_modules("clotho", "activities", "pydantic")
    return SandboxedWorkflowRunner(restrictions=shared)
