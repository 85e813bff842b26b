"""Sentences about the versions of workers: those that get no work, and those that are drained."""

from dataclasses import dataclass

from temporalio.api.enums.v1 import WorkerDeploymentVersionStatus as Status
from temporalio.client import Client

from clotho.rollouts.task_queues import TaskQueues
from clotho.temporal.deployments import Deployment, read_deployment

NEW = (Status.WORKER_DEPLOYMENT_VERSION_STATUS_INACTIVE, Status.WORKER_DEPLOYMENT_VERSION_STATUS_CREATED)
DRAINING = Status.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINING
DRAINED = Status.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINED
RAMPING = Status.WORKER_DEPLOYMENT_VERSION_STATUS_RAMPING


@dataclass(frozen=True)
class Notice:
    fact: str
    advice: str | None = None
    """The remedy; None: nothing to do."""
    stops_runs: bool = False
    """Whether new work doesn't begin at all."""

    @property
    def line(self) -> str:
        return self.fact if self.advice is None else f"{self.fact}: {self.advice}"


async def deployment_notices(client: Client) -> list[Notice]:
    """Read the workers' versions and return the notices about them; none without a build id. Raises RPCError."""
    deployment = await read_deployment(client, TaskQueues().workflows)
    return [] if deployment is None else notices_of(deployment)


async def stopping_notice(client: Client) -> str | None:
    """Why new work doesn't begin, in one line, where versions are the reason. Raises RPCError."""
    return next((notice.line for notice in await deployment_notices(client) if notice.stops_runs), None)


def notices_of(deployment: Deployment) -> list[Notice]:
    return [*notices_of_new_work(deployment), *notices_of_old_versions(deployment)]


def notices_of_new_work(deployment: Deployment) -> list[Notice]:
    current = deployment.current
    others = [version for version in deployment.versions if version in deployment.polling - {current}]
    if current is None:
        if not others:
            return []
        fact = f"deployment {deployment.name} has no current version: {workers_of(others)} get no new work"
        # Workers without a build id begin all of it, or a share beside a version that is being ramped up.
        alone = not deployment.polled_unversioned and not deployment.polling_in(RAMPING)
        return [Notice(fact, deploy_advice(others), stops_runs=alone)]
    if current not in deployment.polling:
        alternative = f", or {deploy_advice(others)}" if others else ""
        fact = f"build {current} is current and none of its workers polls: new work waits"
        return [Notice(fact, f"start its workers{alternative}", stops_runs=True)]
    if waiting := deployment.polling_in(*NEW):
        return [Notice(f"{workers_of(waiting)} aren't current, current is {current}", deploy_advice(waiting))]
    return []


def notices_of_old_versions(deployment: Deployment) -> list[Notice]:
    """Notices on whether workers of former versions are still needed; Temporal looks every few minutes."""
    found = []
    for version, state in deployment.versions.items():
        if state == DRAINING and version in deployment.polling:
            found.append(Notice(f"build {version} is draining: what its workers began is open"))
        elif state == DRAINING:
            fact = f"build {version} is draining, and none of its workers polls"
            found.append(Notice(fact, "start one, unless what it began has ended in the last minutes"))
        elif state == DRAINED and version in deployment.polling and deployment.current is not None:
            found.append(Notice(f"build {version} is drained: its workers can be stopped"))
    return found


def workers_of(versions: list[str]) -> str:
    return f"the workers of {'build' if len(versions) == 1 else 'builds'} {', '.join(versions)}"


def deploy_advice(versions: list[str]) -> str:
    """The command that makes the latest of these versions current."""
    return f"run `clotho deploy {versions[-1]}`"
