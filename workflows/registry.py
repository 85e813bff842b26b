"""All workflows, for workers and for replays of histories."""

from workflows.campaign import Campaign
from workflows.notices import GiveNotice
from workflows.rollout import Rollout
from workflows.rollout_group import RolloutGroup

PINNED = (RolloutGroup, Rollout)
"""Workflows that finish on the version of the code that they began with."""
UPGRADED = (Campaign, GiveNotice)
"""Workflows that go on with the current version."""
WORKFLOWS = (*PINNED, *UPGRADED)
