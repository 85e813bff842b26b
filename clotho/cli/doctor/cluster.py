"""`clotho doctor --cluster`: all hosts, processes and queues of a store and a namespace, and their clocks.

Everything is asked side by side, and what answers late is left out: the whole takes less than 10 s.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from rich.console import Console
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from clotho.cli.deployment_notices import deployment_notices
from clotho.cli.doctor.findings import Finding, show
from clotho.cli.doctor.stuck import stuck
from clotho.cli.options import existing_journal
from clotho.cli.terminal import amount, print_json
from clotho.config import Settings
from clotho.errors import ClothoError
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal
from clotho.processes.liveness import Sign, clock_offsets, last_signs, living_heartbeats
from clotho.rollouts.task_queues import TaskQueues
from clotho.temporal.connection import connect
from clotho.temporal.deployments import PATIENCE, live_pollers

FIRST_SECONDS, SECOND_SECONDS = 3.0, 5.0
"""Time for connections, and for what is asked through them."""
CLOCK_SECONDS = 5.0
"""Difference between a host's clock and the store's that needs attention."""
SLOW_SECONDS = 1.0
"""Time of a small answer that needs attention."""
WAIT_SECONDS = 30.0
"""Age of a queue's oldest task that needs attention."""
UNASKED = "start workers with their roles; with some, Temporal refuses polls beyond `frontend.namespaceCount`"
"""What to do about queues that no worker polls."""

T = TypeVar("T")


class ProcessSign(FrozenModel):
    """A worker process, by the queue that it or its host alone serves."""

    name: str
    alive: bool
    idle: bool
    age: float
    """Seconds since its last heartbeat."""
    clock: float
    """Seconds by which its host's clock was ahead of the store's when it wrote that."""
    version: str = ""
    machines: tuple[str, ...] = ()
    """Those that write its heartbeats: more than one where two have one name."""


class HostSigns(FrozenModel):
    host: str
    processes: tuple[ProcessSign, ...] = ()
    only_workflows: int = 0
    """Processes that serve no queue of their own, and so write no heartbeat: they run workflows alone."""

    @property
    def alive(self) -> list[ProcessSign]:
        return [each for each in self.processes if each.alive]


class QueueState(FrozenModel):
    queue: str
    backlog: int
    oldest: float
    """Seconds that its oldest task has waited."""
    pollers: int
    processes: tuple[str, ...] = ()
    """Those that ask for its tasks, each as pid@host."""


class ClusterReport(FrozenModel):
    """The object that `--json` prints; a part that gave no answer in time is missing, and a finding says so."""

    hosts: tuple[HostSigns, ...] = ()
    queues: tuple[QueueState, ...] = ()
    store_seconds: float | None = None
    """Time of a listing of the heartbeats."""
    temporal_seconds: float | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def needs_attention(self) -> bool:
        return any(finding.advice is not None for finding in self.findings)


async def examine_cluster(settings: Settings) -> ClusterReport:
    """Ask store and Temporal, each for at most FIRST_SECONDS + SECOND_SECONDS."""
    of_store, of_temporal = await asyncio.gather(_of_store(settings), _of_temporal(settings))
    hosts, queues, findings = of_store.hosts, of_temporal.queues, (*of_store.findings, *of_temporal.findings)
    hosts += _of_workflows_alone(hosts, queues)
    if not any(host.alive or host.only_workflows for host in hosts):
        if hosts and of_temporal.temporal_seconds is not None:
            findings += (Finding("no worker of this store is alive", "start `clotho worker` on its hosts"),)
    elif unasked := [each.queue for each in queues if not each.pollers]:
        findings += (Finding(f"no worker asks for tasks of {', '.join(unasked)}", UNASKED),)
    return ClusterReport(
        hosts=hosts,
        queues=queues,
        store_seconds=of_store.store_seconds,
        temporal_seconds=of_temporal.temporal_seconds,
        findings=findings,
    )


def _of_workflows_alone(hosts: Sequence[HostSigns], queues: Sequence[QueueState]) -> tuple[HostSigns, ...]:
    """The hosts that Temporal alone knows, by the processes that ask it for workflows' tasks."""
    known = {host.host for host in hosts}
    asking = {
        process for each in queues if each.queue == TaskQueues().workflows for process in each.processes
    }
    counts = Counter(process.partition("@")[2] for process in asking)
    return tuple(
        HostSigns(host=host, only_workflows=count)
        for host, count in sorted(counts.items())
        if host not in known
    )


async def _of_store(settings: Settings) -> ClusterReport:
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            journal = await existing_journal(settings)
        async with asyncio.timeout(SECOND_SECONDS):
            # after the connection: its time tells of the network, not of the server's load
            started = time.monotonic()
            signs = await last_signs(journal)
            seconds = time.monotonic() - started
            hosts = await _hosts(journal, signs)
    except TimeoutError:
        return _missing("the store doesn't answer in time", "see to its server, or its network")
    except ClothoError as error:
        return _missing(f"store: {error}", "make it reachable")
    findings = [finding for host in hosts for finding in _findings_of(host)]
    if seconds > SLOW_SECONDS:
        findings.append(Finding(f"the store took {seconds:.1f} s for a listing", "see to its server"))
    versions = {each.version for host in hosts for each in host.alive}
    if len(versions) > 1:
        fact = f"workers of {len(versions)} versions are alive: {', '.join(sorted(versions))}"
        findings.append(Finding(fact, "update the others, and make the new version current: `clotho deploy`"))
    return ClusterReport(hosts=hosts, store_seconds=seconds, findings=tuple(findings))


async def _hosts(journal: Journal, signs: dict[str, Sign]) -> tuple[HostSigns, ...]:
    said, clocks = await asyncio.gather(living_heartbeats(journal), clock_offsets(journal))
    found: dict[str, list[ProcessSign]] = defaultdict(list)
    for name, sign in signs.items():
        heartbeats = said.get(name, [])
        found[host_of(name, signs)].append(
            ProcessSign(
                name=name,
                alive=sign.alive,
                idle=sign.idle,
                age=round(sign.age, 1),
                clock=round(clocks.get(name, 0.0), 1),
                version=heartbeats[-1].version if heartbeats else "",
                machines=tuple(sorted({each.machine for each in heartbeats if each.machine})),
            )
        )
    return tuple(HostSigns(host=host, processes=tuple(each)) for host, each in sorted(found.items()))


def host_of(name: str, names: dict[str, Sign]) -> str:
    """The host in the name of a queue: of one that a process serves, or of the host's own."""
    queues = TaskQueues()
    before, _, number = name.rpartition("-")
    if number.isdigit() and (before in names or name.startswith(f"{queues.model.queue}-")):
        name = before
    return name.removeprefix(f"{queues.model.queue}-").removeprefix(f"{queues.sandbox.queue}-")


def _findings_of(host: HostSigns) -> list[Finding]:
    found, alive = [], host.alive
    if len(machines := {machine for each in alive for machine in each.machines}) > 1:
        found.append(
            Finding(
                f"{host.host}: {len(machines)} machines have this name",
                "give each a name of its own: CLOTHO_HOST",
            )
        )
    ahead = max((each.clock for each in alive), key=abs, default=0.0)
    if abs(ahead) > CLOCK_SECONDS:
        fact = f"{host.host}: its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the store's"
        found.append(Finding(fact, "have a time service set it, such as chrony"))
    return found


async def _of_temporal(settings: Settings) -> ClusterReport:
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            client = await connect(settings.temporal)
            started = time.monotonic()
            await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=PATIENCE)
            seconds = time.monotonic() - started
    except (ClothoError, RPCError, TimeoutError) as error:
        return _missing(f"Temporal: {str(error) or 'no answer in time'}", "make it reachable")
    queues, stopped, versions = await asyncio.gather(
        _in_time(queue_states(client), "queues"),
        _in_time(stuck(client), "open runs"),
        _in_time(_versions(client), "versions"),
    )
    states = [each for each in queues if isinstance(each, QueueState)]
    findings = [each for part in (queues, stopped, versions) for each in part if isinstance(each, Finding)]
    for state in states:
        if state.oldest > WAIT_SECONDS:
            fact = f"{state.queue}: {amount(state.backlog, 'task')} wait, the oldest for {state.oldest:.0f} s"
            findings.append(Finding(fact, "start more workers with its role, or raise their bounds"))
    if seconds > SLOW_SECONDS:
        findings.append(
            Finding(f"Temporal took {seconds:.1f} s for an answer", "see to its server and database")
        )
    return ClusterReport(queues=tuple(states), temporal_seconds=seconds, findings=tuple(findings))


async def _in_time(answer: Awaitable[Sequence[T]], what: str) -> Sequence[T | Finding]:
    try:
        async with asyncio.timeout(SECOND_SECONDS):
            return await answer
    except TimeoutError:
        return [Finding(f"{what}: no answer within {SECOND_SECONDS:g} s", "see to Temporal's load")]
    except RPCError as error:
        return [Finding(f"{what}: not known: {error.message}", "ask again once Temporal answers")]


async def queue_states(client: Client) -> list[QueueState]:
    """Backlog and age of the queues that all workers share. Raises RPCError."""
    queues, workflow = TaskQueues(), TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    activity = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    kinds = {
        queues.workflows: workflow,
        queues.campaigns: workflow,
        queues.model.queue: activity,
        queues.environment.queue: activity,
        queues.sandbox.queue: activity,
    }

    async def state(queue: str, kind: TaskQueueType.ValueType) -> QueueState:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=kind,
            report_stats=True,
        )
        described = await client.workflow_service.describe_task_queue(request, timeout=PATIENCE)
        pollers = live_pollers(described)
        return QueueState(
            queue=queue,
            backlog=described.stats.approximate_backlog_count,
            oldest=described.stats.approximate_backlog_age.ToTimedelta().total_seconds(),
            pollers=len(pollers),
            processes=tuple(sorted({poller.identity for poller in pollers})),
        )

    return list(await asyncio.gather(*(state(queue, kind) for queue, kind in kinds.items())))


async def _versions(client: Client) -> list[Finding]:
    return [Finding(notice.fact, notice.advice) for notice in await deployment_notices(client)]


def _missing(fact: str, advice: str) -> ClusterReport:
    return ClusterReport(findings=(Finding(fact, advice),))


def show_report(console: Console, report: ClusterReport) -> None:
    show(
        console,
        "hosts",
        [Finding(_host_line(host)) for host in report.hosts] or [Finding("none was ever seen")],
    )
    show(
        console,
        "queues",
        [
            Finding(
                f"{each.queue}: {amount(each.backlog, 'task')} wait, the oldest for {each.oldest:.0f} s;"
                f" {amount(each.pollers, 'poller')}"
            )
            for each in report.queues
        ],
    )
    times = {"store": report.store_seconds, "Temporal": report.temporal_seconds}
    answers = [
        Finding(f"{what}: answers in {took * 1000:.0f} ms")
        for what, took in times.items()
        if took is not None
    ]
    show(console, "answers", answers)
    show(console, "findings", list(report.findings) or [Finding("nothing needs attention")])


def _host_line(host: HostSigns) -> str:
    if not host.processes:
        return f"{host.host}: {amount(host.only_workflows, 'process', 'processes')} with the role workflows alone"
    youngest = min(each.age for each in host.processes)
    if not host.alive:
        return f"{host.host}: gone, last sign {youngest:.0f} s ago"
    versions = ", ".join(sorted({each.version for each in host.alive if each.version})) or "not told"
    clock = max((each.clock for each in host.alive), key=abs)
    idle = ", idle" if all(each.idle for each in host.alive) else ""
    return (
        f"{host.host}: {amount(len(host.alive), 'queue')} served{idle}; version {versions};"
        f" clock {clock:+.0f} s; last sign {youngest:.0f} s ago"
    )


async def command(settings: Settings, console: Console, as_json: bool) -> int:
    """Show the report; returns the exit status."""
    report = await examine_cluster(settings)
    if as_json:
        print_json(report)
    else:
        show_report(console, report)
    return int(report.needs_attention)
