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


def workflow_runner() -> SandboxedWorkflowRunner:
    """What workflows share with activities isn't imported anew for each of them."""
    passed = SandboxRestrictions.default.with_passthrough_modules("clotho", "activities", "pydantic")
    return SandboxedWorkflowRunner(restrictions=passed)
