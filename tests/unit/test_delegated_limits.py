"""What a child has of its parent's limits, what it uses of them, and how operators name it."""

import pytest

from clotho.environment import EnvironmentConfig
from clotho.errors import InvalidInput
from clotho.rollouts.call import CallResult
from clotho.rollouts.delegation import DelegatedWork, LeftSandbox
from clotho.rollouts.lease import Lease
from clotho.rollouts.outcome import Limits
from clotho.rollouts.rollout import RolloutState, Totals
from clotho.runs.targets import Target, running_rollouts
from clotho.tools.delegation import DelegationSettings
from clotho.tools.shell import SLOT

LIMITS = Limits(max_turns=30, max_sampled_tokens=100, max_active_seconds=60.0)
LEFT = LeftSandbox.model_validate(
    {
        "lease": Lease(number=2, queue="host"),
        "losses": (),
        "checkpoint": "0000-00~0001-00",
        "shell": "0000-00~0002-00",
    }
)


def after(work: DelegatedWork | None) -> RolloutState:
    """A rollout that has sampled 40 tokens in 10 s, after one more call."""
    state = RolloutState(
        totals=Totals(turns=1, sampled_tokens=40, active_seconds=10.0),
        checkpoint="0000-00",
        tool_state={SLOT: "0000-00", "todo": "0000-01"},
    )
    return state.after_call("0000-02", CallResult(seconds=1.0, delegated=work))


def test_a_child_has_what_its_parent_has_left() -> None:
    limits = after(None).limits_of_child(LIMITS, turns=4)
    assert (limits.max_turns, limits.max_sampled_tokens, limits.max_active_seconds) == (4, 60, 49.0)
    unbounded = after(None).limits_of_child(Limits(), turns=4)
    assert (unbounded.max_sampled_tokens, unbounded.max_active_seconds) == (None, None)


def test_what_a_child_uses_counts_against_its_parents_limits() -> None:
    state = after(DelegatedWork(sampled_tokens=60, active_seconds=30.0))
    assert (state.totals.sampled_tokens, state.totals.delegated_tokens) == (40, 60)
    assert state.limit_met(LIMITS) == "max_sampled_tokens"
    assert state.seconds_left(LIMITS) == 19.0
    assert (state.checkpoint, state.tool_state[SLOT]) == ("0000-00", "0000-00")


def test_a_parent_goes_on_in_the_shell_and_from_the_checkpoint_that_a_child_left() -> None:
    state = after(DelegatedWork(sampled_tokens=0, active_seconds=0.0, left=LEFT))
    assert state.checkpoint == LEFT.checkpoint
    assert state.tool_state == {SLOT: LEFT.shell, "todo": "0000-01"}


def test_operators_name_a_child_as_it_is_shown() -> None:
    target = Target.named("run/g000001/r3.1~0004-00~0000-12")
    assert (target.group, target.workflow) == ("run/g000001", "run/g000001/r3.1~0004-00~0000-12")
    assert "STARTS_WITH 'run/g000001/r3~'" in running_rollouts(Target.named("run/g000001/r3"))
    with pytest.raises(InvalidInput):
        Target.named("run/g000001/r3~4")


def test_runs_that_began_without_delegation_keep_their_settings() -> None:
    """The fingerprint of a manifest covers what its environment was configured with."""
    assert "delegation" not in EnvironmentConfig().model_dump(mode="json")
    asked = EnvironmentConfig(delegation=DelegationSettings(children=2)).model_dump(mode="json")
    assert EnvironmentConfig.model_validate(asked).delegation == DelegationSettings(children=2)
