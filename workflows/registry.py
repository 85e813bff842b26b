"""All workflows, and the sandbox that they run in: what workers serve, and what recorded histories replay with."""

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.campaign import Campaign
from workflows.rollout import Rollout
from workflows.rollout_group import RolloutGroup

PINNED = (RolloutGroup, Rollout)
"""They end on the version of the code that they began with."""
UPGRADED = (Campaign,)
"""They go on with the current version."""
WORKFLOWS = (*PINNED, *UPGRADED)


SHARED = SandboxRestrictions.default.with_passthrough_modules("clotho", "activities", "pydantic")


def workflow_runner() -> SandboxedWorkflowRunner:
    """Nothing is imported anew for each workflow, which takes as long as several of its turns."""
    return SandboxedWorkflowRunner(restrictions=SHARED.with_passthrough_modules("workflows"))


def strict_runner() -> SandboxedWorkflowRunner:
    """Workflow code of each workflow's own, in which clocks, randomness and I/O are refused: for the tests."""
    return SandboxedWorkflowRunner(restrictions=SHARED)
