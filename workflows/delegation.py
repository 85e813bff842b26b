"""The children of a rollout: the rollouts that do the tasks which its calls delegate.

A child is run before its call is made (`activities/tools.py` then reads its end). Its id comes from the call, so
that a repaired parent finds its child again. If it fails, its parent fails: the model gets no result.
"""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.delegation import Delegations
    from clotho.rollouts.call import CallRequest
    from clotho.rollouts.delegation import DelegationEntry, SharedSandbox
    from clotho.rollouts.rollout import RolloutRequest, RolloutState
    from clotho.temporal.search_attributes import DELEGATING
    from clotho.tools.shell import SLOT

from workflows import attributes
from workflows.children import roll_out
from workflows.sandbox_session import SandboxSession
from workflows.steps import raise_if_cancelled, run_activity_here_first


class Delegation:
    """The children of one rollout."""

    def __init__(self, request: RolloutRequest, sandbox: SandboxSession) -> None:
        self._request = request
        self._sandbox = sandbox

    async def run_child(self, call: CallRequest, state: RolloutState) -> None:
        """Run the child that a call begins, to its end; do nothing if the call begins none or was made before."""
        environment = self._request.task_queues.environment
        begun = await run_activity_here_first(
            Delegations.begin_delegation, call, environment, "begin delegated task"
        )
        if begun is None or begun.child is None:
            return
        if begun.shared:
            # the child is given the lease, which isn't known before the sandbox is made
            await self._sandbox.finish_acquiring()
        request = self._child(begun.child, begun, state)

        attributes.show_outcome(DELEGATING)
        end = await roll_out(request, f"task of {call.call}")
        attributes.show_no_outcome()
        if end.left is not None:  # before anything else may end this rollout, which releases the sandbox
            self._sandbox.go_on_from(end.left)
        raise_if_cancelled()

    def _child(self, child: str, begun: DelegationEntry, state: RolloutState) -> RolloutRequest:
        own = SharedSandbox(owner=self._request.rollout, turns=state.turn)
        update = {
            "rollout": child,
            "parent": self._request.rollout,
            "limits": state.limits_of_child(self._request.limits, begun.turns),
            "state": self._state(state) if begun.shared else None,
            "shared": (self._request.shared or own) if begun.shared else None,
        }
        return self._request.model_copy(update=update)

    def _state(self, state: RolloutState) -> RolloutState:
        """What a child in this rollout's sandbox begins with."""
        shell = {slot: call for slot, call in state.tool_state.items() if slot == SLOT}
        return RolloutState(
            lease=self._sandbox.lease,
            losses=self._sandbox.losses,
            checkpoint=state.checkpoint,
            tool_state=shell,
        )
