"""The activities of a sandbox host, and those that workflows find in their own process."""

from collections.abc import Callable
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities.agents import Agents
from activities.claims import WorkClaims
from activities.delegation import Delegations
from activities.groups import Groups
from activities.guard import ELSEWHERE
from activities.idle import IdleSandboxes
from activities.llm import Model
from activities.restore import Restorer
from activities.reward import Verifier
from activities.rollouts import Rollouts
from activities.sandbox import Sandboxes
from activities.tools import Tools
from clotho.config import variable
from clotho.environment.instances import Environments
from clotho.environment.tools import EnvironmentTools
from clotho.identifiers.ids import job_key
from clotho.journal import Journal
from clotho.monitoring.metrics import Metrics
from clotho.processes.liveness import Presence
from clotho.sandbox.backend import Labels, SandboxBackend
from clotho.temporal.states import RolloutOwners

Activities = tuple[Callable[..., Any], ...]


class Host:
    """The activities of one process on a sandbox host; `queue` is the host's own, `process_queue` the process's."""

    def __init__(
        self,
        client: Client,
        journal: Journal,
        backend: SandboxBackend,
        environments: Environments,
        queue: str,
        process_queue: str,
        metrics: Metrics,
        labels: Labels,
        presence: Presence,
    ) -> None:
        known = EnvironmentTools(variable, environments, job_key(journal.store_identity, queue))
        self.close = known.sources.close
        """Ends what calls of tools have left open, such as conversations with servers."""
        restorer = Restorer(journal, backend, known, labels)
        sandboxes = Sandboxes(journal, backend, restorer, labels, queue, known.scope, metrics, presence)
        self.idle = IdleSandboxes(journal, sandboxes, RolloutOwners(client))
        """Gives sandboxes back that nothing uses."""
        claims = WorkClaims(journal, presence, process_queue)
        tools = Tools(journal, sandboxes, known, metrics, claims)
        agents = Agents(journal, sandboxes, process_queue, client)
        verifier = Verifier(journal, environments, sandboxes, known, claims)
        groups = Groups(journal, environments, known, sandboxes, client)
        rollouts = Rollouts(journal, metrics)
        delegations = Delegations(journal)
        self.of_sandboxes: Activities = (
            sandboxes.acquire,
            sandboxes.release,
            sandboxes.host_is_present,
            tools.call_tool,
            agents.run_program,
        )
        self.of_verification: Activities = (verifier.verify,)
        self.of_campaigns: Activities = (
            groups.enumerate_items,
            groups.unfinished_groups,
            groups.await_any_closed,
        )
        self.of_groups: Activities = (
            groups.begin_group,
            groups.conclude_group,
            groups.repair_sibling,
            groups.keep_attempt,
            groups.await_closed,
            rollouts.find_end,
            rollouts.conclude,
            delegations.begin_delegation,
        )


LOCAL: Activities = (
    Sandboxes.acquire,
    Sandboxes.release,
    Tools.call_tool,
    Verifier.verify,
    Groups.begin_group,
    Groups.conclude_group,
    Rollouts.find_end,
    Rollouts.conclude,
    Delegations.begin_delegation,
    Model.sample_first_turn,
    Model.sample_turn,
)
"""The activities that workflows try in their own process first."""


def local_activities(host: Host | None, model: Model | None) -> Activities:
    """The activities that a workflow finds in its own process; without `host` or `model`, it can't do theirs."""
    served: Activities = () if model is None else (model.sample_first_turn, model.sample_turn)
    if host is not None:
        served += (*host.of_sandboxes, *host.of_verification, *host.of_groups)
    by_name = {method.__name__: method for method in served}
    return tuple(by_name.get(each.__name__) or _elsewhere(each.__name__) for each in LOCAL)


def _elsewhere(name: str) -> Callable[..., Any]:
    @activity.defn(name=name)
    async def elsewhere(request: Any) -> None:
        raise ApplicationError(f"another kind of process does {name}", type=ELSEWHERE)

    return elsewhere
