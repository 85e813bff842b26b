"""Composition root: builds every dependency once and runs the Temporal workers.

By default there is one process for each processor, with all roles, so that most steps run where their workflow is.
Authors' code runs in processes of its own. Without --roles this starts all processes and keeps them running.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypedDict

import typer
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import Runtime
from temporalio.worker import (
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerDeploymentConfig,
)

from activities.budgets import BudgetWatch
from activities.host import Activities, Host, local_activities
from activities.interceptors import LoadInterceptor, PresenceInterceptor
from activities.llm import Model
from activities.notices import Hooks
from activities.pauses import PauseActivities
from activities.sampling import TurnSampler
from activities.turn_claims import TurnClaims
from clotho import application, failpoints
from clotho.config import (
    Settings,
    cache_folder,
    is_in_environment,
    load_settings,
    read_settings_file,
    receive_keys,
    secret,
    variable,
)
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.environment.instances import EnvironmentProcesses, Environments, EnvironmentsHere
from clotho.environment.pool import ProcessBounds, default_processes
from clotho.environment.processes import end_all_groups
from clotho.errors import ClothoError
from clotho.escaping import for_terminal
from clotho.host import host_name, machine_id
from clotho.identifiers.keys import is_turn_key
from clotho.journal import Journal
from clotho.journal.open_store import open_store
from clotho.journal.store import MeasuredStore, Store
from clotho.logs import configure
from clotho.models.write_ahead import FlushPolicy
from clotho.monitoring.endpoint import open_runtime
from clotho.monitoring.health import serve_health, worker_readiness
from clotho.monitoring.metrics import Metrics, SandboxCounts
from clotho.monitoring.tracing import Tracing, open_tracing
from clotho.processes.ending import leave
from clotho.processes.group import ProcessGroup, ProcessPlan, exit_status
from clotho.processes.heartbeats import Heartbeats
from clotho.processes.keys import keys_of, replace_process
from clotho.processes.liveness import Liveness, Presence
from clotho.processes.load import ProcessLoad
from clotho.processes.roles import MOST_PROCESSES, ROLES, ProcessSlot, process_layout
from clotho.processes.shortage import SHORT_SECONDS, lasting_shortage
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.rollouts import is_superseded
from clotho.sandbox.reaper import SandboxReaper
from clotho.sandbox.registry import BackendsBeside, open_backend
from clotho.temporal.connection import connect
from clotho.temporal.namespace import ensure_search_attributes
from clotho.temporal.states import RolloutOwners, namespace_labels, served_namespace
from clotho.temporal.workflow_slots import WorkflowSlots, workflow_tuner
from clotho.tools.secrecy import CommandPreviews
from clotho.worker_settings import WorkerSettings
from workflows.registry import PINNED, UPGRADED

if TYPE_CHECKING:
    from clotho.models.backends import Backends
    from clotho.models.pacing import Pacer

MOST_OWN_POLLERS = 10
"""Requests for activities that a process has open on its own queue of turns."""
WRITING_SECONDS = 10.0
"""Time beyond a drain for answers that have just come, and that the store has to take."""

log = logging.getLogger("clotho")


class Versioned(TypedDict, total=False):
    """The version that a worker reports."""

    deployment_config: WorkerDeploymentConfig
    build_id: str


UNVERSIONED: Versioned = {"build_id": metadata.version("clotho-rollouts")}
"""Short, since most events of a history repeat it; the SDK would hash the code of every module that is loaded."""


@dataclass(frozen=True)
class Composition:
    """The dependencies that the workers of one process share."""

    settings: Settings
    client: Client
    journal: Journal
    task_queues: TaskQueues
    metrics: Metrics
    heartbeats: Heartbeats
    load: ProcessLoad

    def version(self, behavior: VersioningBehavior = VersioningBehavior.UNSPECIFIED) -> Versioned:
        """The version of all queues but those of one host or process, which serve every live version."""
        worker = self.settings.worker
        if not worker.build_id:
            return UNVERSIONED
        version = WorkerDeploymentVersion(deployment_name=worker.deployment, build_id=worker.build_id)
        return {"deployment_config": WorkerDeploymentConfig(version, True, behavior)}

    def workflows(self, sandbox_host: Host | None, model: Model | None) -> list[Worker]:
        sizes = self.settings.worker
        local = local_activities(sandbox_host, model)
        served = (
            (self.task_queues.workflows, PINNED, VersioningBehavior.PINNED),
            (self.task_queues.campaigns, UPGRADED, VersioningBehavior.AUTO_UPGRADE),
        )
        return [
            Worker(
                self.client,
                task_queue=queue,
                interceptors=[PresenceInterceptor(self.heartbeats), LoadInterceptor(self.load)],
                workflows=workflows,
                activities=local,
                # local steps alone: the activities' own queues have workers of their own
                no_remote_activities=True,
                tuner=workflow_tuner(
                    WorkflowSlots(sizes.max_workflow_tasks, self.load), sizes.max_local_steps
                ),
                # tests replay histories in the SDK's sandbox, which refuses what isn't deterministic
                workflow_runner=UnsandboxedWorkflowRunner(),
                # not Exception: that has NondeterminismError in it, and one bad deploy would fail every run
                workflow_failure_exception_types=[ClothoError],
                # below the number of open workflows, each step of one would replay its history
                max_cached_workflows=sizes.max_cached_workflows,
                workflow_task_poller_behavior=_pollers(2, sizes.workflow_pollers),
                sticky_queue_schedule_to_start_timeout=timedelta(seconds=sizes.cached_seconds),
                graceful_shutdown_timeout=timedelta(seconds=sizes.drain_seconds),
                **self.version(behavior),
            )
            for queue, workflows, behavior in served
        ]

    def backends(self) -> "Backends":
        # Imported here: a third of the time that a process takes to start, and other roles call no model.
        from clotho.models.backends import Backends

        sizes = self.settings.worker
        flush_policy = FlushPolicy(tokens=sizes.write_ahead_tokens, seconds=sizes.write_ahead_seconds)
        return Backends(
            self.journal,
            secret,
            sizes.model_call_timeout_seconds,
            {TINY: BUNDLED},
            flush_policy,
            sizes.model_answer_mb << 20,
            sizes.model_first_token_timeout_seconds,
        )

    def pacer(self, backends: "Backends", own_queue: str) -> "Pacer":
        from clotho.models.pacing import Pacer

        sizes = self.settings.worker
        return Pacer(
            self.journal, own_queue, sizes.rate_limits, backends.metrics, sizes.max_model_calls, self.load
        )

    def model(
        self,
        own_queue: str,
        backends: "Backends",
        pacer: "Pacer",
        budgets: BudgetWatch,
        claims: TurnClaims,
    ) -> Model:
        previews = CommandPreviews(variable) if self.settings.worker.show_commands else None
        turns = TurnSampler(self.journal, backends, own_queue, previews, self.metrics, budgets, pacer, claims)
        return Model(self.journal, turns, backends, own_queue, claims)

    def llm(self, own_queue: str, model: Model, pauses: PauseActivities) -> list[Worker]:
        served: dict[str, list[Callable[..., Any]]] = {
            self.task_queues.model.queue: [
                model.sample_first_turn,
                model.choose_process,
                model.check_model,
                pauses.await_resume,
                pauses.reason_for,
                pauses.pause,
            ],
            own_queue: [model.sample_first_turn, model.sample_turn],
        }
        sizes = self.settings.worker
        presence = PresenceInterceptor(self.heartbeats)
        return [
            Worker(
                self.client,
                task_queue=queue,
                interceptors=[presence, LoadInterceptor(self.load)] if queue == own_queue else [presence],
                activities=activities,
                # The pacer bounds calls: turns that wait for one do so here, where runs share it, not in a queue
                # that is given up after 15 s.
                max_concurrent_activities=max(sizes.max_model_calls, sizes.max_cached_workflows),
                # a process that is frozen takes nobody else's work from its own queue
                activity_task_poller_behavior=_pollers(1, MOST_OWN_POLLERS)
                if queue == own_queue
                else PollerBehaviorSimpleMaximum(sizes.activity_pollers),
                # with the SDK's default of 0, a shutdown would have every call in flight paid for again
                graceful_shutdown_timeout=timedelta(seconds=sizes.drain_seconds),
                # Temporal allows 100 queues in a version: those of single processes would use them up
                **(UNVERSIONED if queue == own_queue else self.version()),
            )
            for queue, activities in served.items()
        ]

    def tools(self, host: Host, host_queue: str, process_queue: str) -> list[Worker]:
        in_sandbox = (*host.of_sandboxes, *host.of_verification)
        hooks = Hooks(self.settings)
        of_campaigns: Activities = (*host.of_campaigns, hooks.list_hooks, hooks.call_hook)
        served = {
            self.task_queues.sandbox.queue: in_sandbox,
            host_queue: in_sandbox,
            process_queue: in_sandbox,
            self.task_queues.environment.queue: (*of_campaigns, *host.of_groups),
        }
        return [
            Worker(
                self.client,
                task_queue=queue,
                interceptors=[PresenceInterceptor(self.heartbeats)],
                activities=activities,
                max_concurrent_activities=self.settings.worker.max_tool_calls,
                max_concurrent_activity_task_polls=self.settings.worker.activity_pollers,
                # Cancellation reaches an activity with a heartbeat only; model calls can't afford so many.
                max_heartbeat_throttle_interval=timedelta(seconds=1),
                graceful_shutdown_timeout=timedelta(seconds=self.settings.worker.drain_seconds),
                **(UNVERSIONED if queue in (host_queue, process_queue) else self.version()),
            )
            for queue, activities in served.items()
        ]


def _pollers(least: int, most: int) -> PollerBehaviorAutoscaling:
    """Poll a queue for as many tasks as wait there, between `least` and `most` at once."""
    return PollerBehaviorAutoscaling(minimum=least, maximum=most, initial=least)


async def reach(
    settings: Settings,
    runtime: Runtime | None = None,
    tracing: Tracing | None = None,
    host: str | None = None,
) -> tuple[Client, Store]:
    """Connect to Temporal, with its search attributes registered, and open the store.

    Temporal shows this process as one of `host`.
    """
    interceptors = [tracing.interceptor] if tracing is not None else []
    # in the SDK's form, whose name of the host would be the machine's: several hosts may share that
    identity = None if host is None else f"{os.getpid()}@{host}"
    client = await connect(settings.temporal, runtime, interceptors, identity)
    await ensure_search_attributes(client)
    return client, await asyncio.to_thread(open_store, settings.store, settings)


def measured_journal(store: Store, metrics: Metrics) -> Journal:
    """The journal in `store`, whose answers are timed, and in which turns that were paid for twice are counted."""

    def repaid(key: str) -> None:
        if is_turn_key(key):
            metrics.count_repaid_turn()

    return Journal(MeasuredStore(store, metrics.count_request), repaid)


def environments_of(sizes: WorkerSettings, journal: Journal) -> Environments:
    """The environments that a worker calls."""
    if sizes.debug:
        return EnvironmentsHere()
    processes = sizes.environment_processes or default_processes()
    return EnvironmentProcesses(journal, ProcessBounds(processes, sizes.environment_memory_mb << 20))


async def serve(roles: tuple[str, ...], settings: Settings) -> None:
    """Run the workers of `roles` in this process until SIGTERM, then drain."""
    host, settings_file = host_name(settings), read_settings_file()
    named = {"host": host, "roles": "+".join(roles)}
    served, tracing = open_runtime(settings.metrics, named), open_tracing(settings.tracing, named)
    metrics = Metrics(served.runtime.metric_meter)
    client, store = await reach(settings, served.runtime, tracing, host)
    served.log()
    journal = measured_journal(store, metrics)
    names: list[Liveness] = []
    counts: SandboxCounts | None = None
    heartbeats = Heartbeats(names, lambda: counts is not None and counts.held != 0)
    parts = Composition(settings, client, journal, TaskQueues(), metrics, heartbeats, ProcessLoad())
    machine, version = machine_id(), settings.worker.build_id or metadata.version("clotho-rollouts")
    namespace = served_namespace(client)
    presence = Presence(journal, namespace)
    workers: list[Worker] = []
    model: Model | None = None
    sandbox_host: Host | None = None
    readiness = worker_readiness(client, store)
    # what fails in here ends the process: it must not work on without its heartbeats or its reaper
    async with asyncio.TaskGroup() as tasks:
        background: list[asyncio.Task[None]] = []
        on_draining: list[Callable[[], None]] = []
        on_drained: list[Callable[[], Coroutine[Any, Any, None]]] = []
        # Numbers are counted by role: processes that restart together then find the queues of their kind again.
        slots = cache_folder() / "processes" / host
        if "llm" in roles:
            llm_slot = ProcessSlot(slots / "llm")
            own_queue = f"{parts.task_queues.model.queue}-{host}-{llm_slot.number}"
            pauses = PauseActivities(journal, client)
            budgets = BudgetWatch(journal, client, own_queue)
            backends = parts.backends()
            pacer = parts.pacer(backends, own_queue)
            on_draining.append(pacer.stop)
            on_drained.append(backends.aclose)
            liveness = Liveness(journal, own_queue, settings_file, namespace, machine, version)
            names.append(liveness)
            claims = TurnClaims(journal, presence, liveness, own_queue)
            model = parts.model(own_queue, backends, pacer, budgets, claims)
            workers += parts.llm(own_queue, model, pauses)
            background.append(tasks.create_task(pacer.run()))
            background.append(tasks.create_task(pauses.run()))
            background.append(tasks.create_task(budgets.run()))
        if "tools" in roles:
            tools_slot = ProcessSlot(slots / "tools")
            folder = settings.sandbox.folder_of(journal.store_identity)
            backend = open_backend(settings, folder)
            on_drained.append(backend.close)
            host_queue = f"{parts.task_queues.sandbox.queue}-{host}"
            sizes = settings.worker
            environments = environments_of(sizes, journal)
            process_queue = f"{host_queue}-{tools_slot.number}"
            labels = await namespace_labels(client, journal.store_identity)
            sandbox_host = Host(
                client, journal, backend, environments, host_queue, process_queue, metrics, labels, presence
            )
            on_drained += [sandbox_host.close, environments.close]
            workers += parts.tools(sandbox_host, host_queue, process_queue)
            reaper = SandboxReaper(
                backend,
                RolloutOwners(client),
                partial(is_superseded, journal),
                labels,
                settings.sandbox.lease_seconds,
                BackendsBeside(settings, folder),
            )
            background.append(tasks.create_task(reaper.run()))
            counts = SandboxCounts(backend, metrics)
            background.append(tasks.create_task(counts.run()))
            background.append(tasks.create_task(sandbox_host.idle.run()))
            for queue in (host_queue, process_queue):
                names.append(Liveness(journal, queue, settings_file, namespace, machine, version))
        # before any worker polls: another machine of this name would share the host's queue, but not its sandboxes
        await heartbeats.claim()
        background.append(tasks.create_task(heartbeats.run()))
        background.append(tasks.create_task(_end_when_short()))
        if "workflows" in roles:
            workers += parts.workflows(sandbox_host, model)
        for worker in workers:
            tasks.create_task(worker.run())
        background.append(tasks.create_task(serve_health(settings.health, readiness)))
        stopped = stop_signal(end_all_groups)
        log.info("serving %s", ", ".join(roles))
        await stopped.wait()
        log.info("draining")
        readiness.draining = True
        # first: turns that wait for a permit go to other processes, and only paid calls are waited for
        for stop in on_draining:
            stop()
        drained = asyncio.get_running_loop().time() + settings.worker.drain_seconds
        await asyncio.gather(*(worker.shutdown() for worker in workers))
        # after the workers: a call goes on in its flight when its activity has ended
        await journal.drain(max(WRITING_SECONDS, drained - asyncio.get_running_loop().time()))
        for close in on_drained:
            await close()
        if tracing is not None:
            await tracing.close()
        for task in background:
            task.cancel()
        # last: others take over the work of a process that has left
        await heartbeats.leave()


def stop_signal(end_children: Callable[[], None]) -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second ends children, then the process, at once."""
    stopped = asyncio.Event()

    def on_signal() -> None:
        if stopped.is_set():
            end_children()
            os._exit(1)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stopped


async def _end_when_short() -> None:
    """End this process at once where it has lacked a resource for a minute: a drain would need it, too."""
    found = await lasting_shortage()
    log.error("ends: no %s for %.0f s", found, SHORT_SECONDS)
    leave(1)


def run_here(roles: tuple[str, ...], settings: Settings) -> NoReturn:
    """Serve `roles` to the end of this process."""
    configure(settings.log_format, "+".join(roles))
    failpoints.arm(settings.fail, settings.fail_folder)
    status = 0
    try:
        asyncio.run(serve(roles, settings))
    except* ClothoError as errors:
        log.error("%s", errors.exceptions[0])
        status = exit_status(errors.exceptions[0])
    leave(status)


def run_workers(
    roles: Annotated[
        str | None,
        typer.Option(help=f"Roles of the processes, of {','.join(ROLES)}. Default: all."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help=f"Number of processes. Default: 1 with --roles, else one a processor, up to {MOST_PROCESSES}.",
            min=1,
        ),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="Where the journal is: a folder or s3://bucket/prefix.")
    ] = None,
    temporal: Annotated[str | None, typer.Option(help="Temporal's address.", metavar="HOST:PORT")] = None,
) -> None:
    """Run Clotho's workers until SIGTERM; a second SIGTERM ends them at once."""
    application.on_path()  # environments are modules beside the user
    receive_keys()
    try:
        settings = load_settings(store, temporal)
        layout = process_layout(roles, processes)
        if is_in_environment(names := settings.worker.model_keys):
            # /proc shows the environment of a process to an author's code, which has the same user
            replace_process(keys_of(names) if any("llm" in group for group in layout) else {}, hidden=names)
        alone = roles is not None and len(layout) == 1
        if not alone:
            asyncio.run(reach(settings))  # an error that would end every process is reported once
    except ClothoError as error:
        typer.echo(f"worker.py: {for_terminal(str(error))}", err=True)
        leave(exit_status(error))
    if alone:
        run_here(layout[0], settings)
    configure(settings.log_format, "worker")
    command = application.command("worker", "--store", settings.store)
    command += ["--temporal", temporal] if temporal else []
    plans = [
        ProcessPlan(
            name=f"{number}:{'+'.join(group)}",
            argv=(*command, "--roles", ",".join(group)),
            keys=keys_of(settings.worker.model_keys) if "llm" in group else {},
        )
        for number, group in enumerate(layout)
    ]
    leave(asyncio.run(ProcessGroup(plans).run()))


def main() -> None:
    program = typer.Typer(add_completion=False)
    program.command()(run_workers)
    program(prog_name="clotho worker")


if __name__ == "__main__":
    main()
