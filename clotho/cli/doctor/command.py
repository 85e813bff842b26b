"""`clotho doctor`: problems of this host and of its runs, and their remedies."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from temporalio.client import Client
from temporalio.service import RPCError

from clotho.cli.deployment_notices import deployment_notices
from clotho.cli.doctor import cluster
from clotho.cli.doctor.disks import disk_findings, used_folders
from clotho.cli.doctor.findings import Examination, Finding, show
from clotho.cli.doctor.sandbox_audit import AuditedSandbox, OwnerStatus, SandboxAudit
from clotho.cli.doctor.stuck import stuck
from clotho.cli.options import Address, AsJson, Store, existing_journal
from clotho.cli.terminal import amount, make_console, print_json, rerun_command
from clotho.config import Settings, load_settings
from clotho.embedded.temporal_binary import THREE_WAYS, obtainable_binary
from clotho.errors import ClothoError, InvalidInput
from clotho.host import host_name, program_on_path
from clotho.journal import Journal
from clotho.models.rendering.rendering import TOKENS_EXTRA, missing_packages
from clotho.plugin import load, plugins
from clotho.processes.ending import leave
from clotho.processes.liveness import Sign, last_signs
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.manifest import list_runs
from clotho.runs.starting import settings_notice
from clotho.sandbox.backend import SandboxBackend
from clotho.sandbox.isolation import UNISOLATED
from clotho.sandbox.reaper import PERIOD_SECONDS
from clotho.sandbox.registry import open_backend
from clotho.temporal.connection import connect, is_named
from clotho.temporal.namespace import creation_command, missing_search_attributes

FIRST_SECONDS, SECOND_SECONDS = 3.0, 5.0
"""Seconds for each of two rounds of questions, so that an examination takes 10 s in all: what isn't answered then
would be waited for without end."""
SANDBOXES = "sandboxes of this host"
CHECKED = {
    "store": "its server or its disk",
    "Temporal": "the server's process, its load and its disk",
    "disks": "a network file system may have gone",
    "isolation": "this machine may be busy",
    SANDBOXES: "Temporal and the store",
    "workers": "the store",
    "versions of the workers": "Temporal",
    "open runs": "Temporal",
}
SEEN_SHOWN = 20
T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """A question of the second round, and the section that shows its answer."""

    title: str
    what: str
    """Name of the part that is examined, for the finding that it doesn't answer."""
    answer: Coroutine[Any, Any, list[Finding]]


def command(
    clean: Annotated[
        bool, typer.Option("--clean", help="Destroy this host's sandboxes that no rollout wants any more.")
    ] = False,
    whole: Annotated[
        bool,
        typer.Option("--cluster", help="Examine all hosts instead: processes, versions, queues, clocks."),
    ] = False,
    as_json: AsJson = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Examine this machine, its sandboxes, the workers and the open runs.

    Exit status 1 if anything needs attention.
    """
    settings = load_settings(store, temporal)
    if whole:
        status = asyncio.run(cluster.command(settings, make_console(), as_json))
        leave(status)  # threads that ask what doesn't answer would be waited for
    raise typer.Exit(asyncio.run(_examine_all(settings, clean, as_json)))


async def _examine_all(settings: Settings, clean: bool, as_json: bool) -> int:
    doctor = Doctor(settings, make_console(), as_json)
    status = await doctor.examine(clean)
    if doctor.gave_up:  # its threads would be waited for as long as what they ask
        leave(status)
    return status


@dataclass
class Doctor:
    settings: Settings
    console: Console
    as_json: bool = False
    gave_up: bool = False
    """Whether something was asked that gave no answer in its time."""

    async def examine(self, clean: bool) -> int:
        """Show everything, destroying orphans before if asked to; returns the exit status."""
        sections = await self._sections(clean)
        if self.as_json:
            print_json(sections)
        else:
            for title, findings in sections.items():
                show(self.console, title, findings)
        return int(any(finding.advice is not None for findings in sections.values() for finding in findings))

    async def _sections(self, clean: bool) -> dict[str, list[Finding]]:
        """The findings by title. All is asked side by side, in two rounds; silence is a finding, too."""
        (journal, of_store), (client, of_temporal), disks = await asyncio.gather(
            self._within("store", FIRST_SECONDS, self._store(), (None, _no_answer("store", FIRST_SECONDS))),
            self._within(
                "Temporal", FIRST_SECONDS, self._temporal(), (None, _no_answer("Temporal", FIRST_SECONDS))
            ),
            self._answered(
                "disks", FIRST_SECONDS, asyncio.to_thread(disk_findings, used_folders(self.settings))
            ),
        )
        full = any(disk.is_full for disk in disks)
        identity = journal.store_identity if journal else self.settings.store
        backend = open_backend(self.settings, self.settings.sandbox.folder_of(identity))
        audit = None if journal is None else SandboxAudit(backend, journal, client)
        sections: dict[str, list[Finding]] = {"machine": []}
        # Orphans go before the questions: the sandboxes that are listed are those that are left.
        if clean and audit is not None and (destroyed := await audit.clean()):
            sections[SANDBOXES] = [Finding(f"destroyed {held.fact}") for held in destroyed]
        asked = [
            Question("machine", "isolation", isolation(backend.own)),
            Question("machine", "bubblewrap", bubblewrap()),
            Question("machine", "token-exact inference", token_packages()),
        ]
        if journal is not None and audit is not None:
            asked += [
                Question(SANDBOXES, SANDBOXES, self._leases(audit, journal, full)),
                Question("workers", "workers", _workers(journal)),
            ]
        if client is not None and not full:  # a server that can't write answers some questions, and wrongly
            asked.append(Question("open runs", "open runs", self._stuck(client)))
            asked.append(Question("workers", "versions of the workers", _versions(client)))
        examination = Examination(self.settings, journal, None if full else client)
        asked += [
            Question(title, f"plugin {plugin.name}", load(target)(examination))
            for plugin in plugins().values()
            for title, target in plugin.doctor.items()
        ]
        answers = await asyncio.gather(
            *(self._answered(each.what, SECOND_SECONDS, each.answer) for each in asked)
        )
        for question, answer in zip(asked, answers, strict=True):
            sections.setdefault(question.title, []).extend(answer)
        sections["machine"] += [*disks, of_store, of_temporal]
        if client is not None and full:
            sections["open runs"] = [
                Finding("not looked at: a disk is full, which would be taken for many faults")
            ]
        return sections

    async def _answered(
        self, what: str, seconds: float, asked: Coroutine[Any, Any, list[Finding]]
    ) -> list[Finding]:
        return await self._within(what, seconds, asked, [_no_answer(what, seconds)])

    async def _within(self, what: str, seconds: float, asked: Coroutine[Any, Any, T], otherwise: T) -> T:
        try:
            async with asyncio.timeout(seconds) as bound:
                return await asked
        except TimeoutError:
            # a time-out of what was asked, not of this bound: a defect, which must not pass for silence
            if not bound.expired():
                raise
            self.gave_up = True
            return otherwise

    @property
    def _is_new(self) -> bool:
        """Whether nothing was run in this folder yet, so that nothing is missing."""
        return (
            self.settings.store == Settings.model_fields["store"].default
            and not self.settings.folder.exists()
        )

    async def _store(self) -> tuple[Journal | None, Finding]:
        if self._is_new:
            return None, Finding(f"store: none yet; the first run makes {self.settings.store}")
        try:
            journal = await existing_journal(self.settings)
            runs = len(await list_runs(journal))
        except ClothoError as error:
            return None, Finding(f"store: {error}", "make it reachable; without it little can be told")
        return journal, Finding(f"store: {journal.store_identity}, {amount(runs, 'run')}")

    async def _temporal(self) -> tuple[Client | None, Finding]:
        """The client, None where there is no connection, and the state of Temporal."""
        try:
            client = await connect(self.settings.temporal)
            missing = await missing_search_attributes(client)
        except (InvalidInput, RPCError) as error:
            binary = obtainable_binary()
            if self._is_new and binary is not None and not is_named(self.settings.temporal):
                return None, Finding(f"Temporal: none runs yet; `clotho dev` starts one: {binary}")
            own = THREE_WAYS if binary is None else f"or start `clotho dev`, whose server is {binary}"
            return None, Finding(
                f"Temporal: {error}", f"make it reachable: TEMPORAL_ADDRESS, or --temporal; {own}"
            )
        place = f"Temporal: {client.service_client.config.target_host}, namespace {client.namespace}"
        if missing:
            advice = f"start a worker, which adds them, or run: {creation_command(missing)}"
            return client, Finding(f"{place}: it lacks the search attributes {', '.join(missing)}", advice)
        return client, Finding(place)

    async def _leases(self, audit: SandboxAudit, journal: Journal, full: bool) -> list[Finding]:
        """The findings about sandboxes. On a full disk workers count as present: they can't say so."""
        queue = f"{TaskQueues().sandbox.queue}-{host_name(self.settings)}"
        seen = await last_signs(journal)
        present = full or (queue in seen and seen[queue].alive)
        held = sorted(await audit.held(), key=lambda each: each.record.lease)
        return [self._lease(each, present) for each in held] or [Finding("none")]

    def _lease(self, held: AuditedSandbox, present: bool) -> Finding:
        if held.owner.orphan and present:
            return Finding(
                f"{held.fact}; orphan: this host's worker destroys it within {PERIOD_SECONDS:.0f} s"
            )
        if held.owner.orphan:
            now = rerun_command("doctor --clean", self.settings)
            advice = f"no worker is here to destroy it: start one, or destroy all orphans now: {now}"
            return Finding(f"{held.fact}; orphan", advice)
        if not present and held.owner is not OwnerStatus.ELSEWHERE:
            return Finding(held.fact, "no worker is here to renew its lease: start one")
        return Finding(held.fact)

    async def _stuck(self, client: Client) -> list[Finding]:
        try:
            return list(await stuck(client))
        except RPCError as error:
            return [Finding(f"not known: {error.message}", "ask again once Temporal answers")]


async def isolation(backend: SandboxBackend) -> list[Finding]:
    try:
        report = await backend.probe()
    except (ClothoError, OSError) as error:
        return [Finding(f"isolation: {error}", "give another sandbox.root, such as CLOTHO_SANDBOX__ROOT")]
    if not report.isolated:
        return [
            Finding(
                f"isolation: it can't be proved that a sandbox here {'; '.join(report.missing)}", UNISOLATED
            )
        ]
    bounds = f"memory {report.memory}, processes {report.processes}, disk {report.disk}"
    bounds = f"{bounds}, processors {report.processors}"
    user = "two users for each sandbox" if report.own_user else "the worker's user for all of them"
    user = f"{user}; {'with' if report.landlock else 'without'} Landlock"
    refused = f"; runs with `limits: required` are refused ({', '.join(report.unlimited)})"
    return [Finding(f"isolation: proved; {user}; bounds: {bounds}{refused if report.unlimited else ''}")]


async def bubblewrap() -> list[Finding]:
    found = program_on_path("bwrap")
    if found is None:
        return [Finding("bubblewrap: not installed", "install it: apt install bubblewrap")]
    return [Finding(f"bubblewrap: {found}")]


async def token_packages() -> list[Finding]:
    """Whether the packages of token-exact inference are here; as an extra, they aren't needed by everyone."""
    if missing := missing_packages():
        return [Finding(f"token-exact inference: {' and '.join(missing)} not installed; {TOKENS_EXTRA}")]
    return [Finding("token-exact inference: installed")]


async def _workers(journal: Journal) -> list[Finding]:
    found = heartbeats(await last_signs(journal))
    if (notice := await settings_notice(journal)) is not None:
        found.append(Finding("settings: not those of clotho.yaml", notice))
    return found


async def _versions(client: Client) -> list[Finding]:
    try:
        return [Finding(notice.fact, notice.advice) for notice in await deployment_notices(client)]
    except RPCError as error:
        return [Finding(f"versions: not known: {error.message}", "ask again once Temporal answers")]


def _no_answer(what: str, seconds: float) -> Finding:
    return Finding(f"{what}: no answer within {seconds:g} s", f"see to its health: {CHECKED.get(what, what)}")


def heartbeats(seen: dict[str, Sign]) -> list[Finding]:
    """Processes by their last heartbeats, the latest first. A missing one may have been stopped on purpose."""
    latest = sorted(seen.items(), key=lambda sign: sign[1].age)
    return [
        Finding(f"{name}: {'present' if sign.alive else 'gone'}, last sign {sign.age:.0f} s ago")
        for name, sign in latest[:SEEN_SHOWN]
    ] or [Finding("none was ever seen")]
