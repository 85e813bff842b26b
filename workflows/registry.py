"""All workflows, for workers and for replays of histories."""

from workflows.campaign import Campaign
from workflows.rollout import Rollout
from workflows.rollout_group import RolloutGroup

PINNED = (RolloutGroup, Rollout)
"""They finish on the version of the code that they began with."""
UPGRADED = (Campaign,)
"""They go on with the current version."""
WORKFLOWS = (*PINNED, *UPGRADED)
