"""`clotho doctor`: problems of this host and of its runs, and their remedies."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from temporalio.client import Client
from temporalio.service import RPCError

from clotho.cli.doctor.findings import Finding, show
from clotho.cli.doctor.notices import given_notices, notice_settings
from clotho.cli.doctor.sandbox_audit import AuditedSandbox, OwnerStatus, SandboxAudit
from clotho.cli.doctor.stuck import stuck
from clotho.cli.options import Address, Store, existing_journal
from clotho.cli.terminal import make_console, rerun_command
from clotho.config import Settings, load_settings
from clotho.errors import ClothoError, InvalidInput
from clotho.host import host_name, program_on_path
from clotho.journal import Journal
from clotho.processes.liveness import LIVENESS_SECONDS, heartbeat_ages
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.manifest import list_runs
from clotho.sandbox.backend import SandboxBackend
from clotho.sandbox.reaper import PERIOD_SECONDS
from clotho.sandbox.registry import open_backend
from clotho.temporal.connection import connect
from clotho.temporal.namespace import creation_command, missing_search_attributes
from clotho.tools.browser.launch import chromium, lacking

TIMEOUT = 10.0
"""Seconds for what Temporal is asked about as a whole: a client would wait for it without end."""
SEEN_SHOWN = 20


def command(
    clean: Annotated[
        bool, typer.Option("--clean", help="Destroy this host's sandboxes that no rollout wants any more.")
    ] = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Examine this machine, its sandboxes, the workers and the open runs.

    Exit status 1 if anything needs attention.
    """
    settings = load_settings(store, temporal)
    raise typer.Exit(asyncio.run(Doctor(settings, make_console()).examine(clean)))


@dataclass(frozen=True)
class Doctor:
    settings: Settings
    console: Console

    async def examine(self, clean: bool) -> int:
        """Show everything, destroying orphans before if asked to; returns the exit status."""
        journal, of_store = await self._store()
        client, of_temporal = await self._temporal()
        identity = journal.store_identity if journal else self.settings.store
        backend = open_backend(self.settings.sandbox, self.settings.sandbox.folder_of(identity))
        programs = [self._bubblewrap(), browser()]
        machine = [await isolation(backend.own), *programs, await containers(backend.containers)]
        sections = {"machine": [*machine, of_store, of_temporal]}
        if journal is not None:
            seen = await heartbeat_ages(journal)
            audit = SandboxAudit(backend, journal, client)
            cleaned = [Finding(f"destroyed {held.fact}") for held in await audit.clean()] if clean else []
            sections["sandboxes of this host"] = cleaned + await self._leases(audit, seen)
            sections["workers"] = heartbeats(seen)
        if client is not None:
            sections["open runs"] = await self._stuck(client)
        sections["notices"] = notice_settings(self.settings.notify)
        if client is not None and journal is not None:
            sections["notices"] += await given_notices(client, journal)
        for title, findings in sections.items():
            show(self.console, title, findings)
        return int(any(finding.advice is not None for findings in sections.values() for finding in findings))

    async def _store(self) -> tuple[Journal | None, Finding]:
        try:
            journal = await existing_journal(self.settings)
            runs = len(await list_runs(journal))
        except ClothoError as error:
            return None, Finding(f"store: {error}", "make it reachable; without it little can be told")
        return journal, Finding(f"store: {journal.store_identity}, {runs} runs")

    async def _temporal(self) -> tuple[Client | None, Finding]:
        """The client, None where there is no connection, and the state of Temporal."""
        try:
            async with asyncio.timeout(TIMEOUT):
                client = await connect(self.settings.temporal)
                missing = await missing_search_attributes(client)
        except TimeoutError:
            return None, Finding("Temporal: no answer", "see to the server's health")
        except (InvalidInput, RPCError) as error:
            return None, Finding(f"Temporal: {error}", "make it reachable: TEMPORAL_ADDRESS, or --temporal")
        place = f"Temporal: {client.service_client.config.target_host}, namespace {client.namespace}"
        if missing:
            advice = f"start a worker, which adds them, or run: {creation_command(missing)}"
            return client, Finding(f"{place}: it lacks the search attributes {', '.join(missing)}", advice)
        return client, Finding(place)

    def _bubblewrap(self) -> Finding:
        found = program_on_path("bwrap")
        if found is None:
            return Finding("bubblewrap: not installed", "install it: apt install bubblewrap")
        return Finding(f"bubblewrap: {found}")

    async def _leases(self, audit: SandboxAudit, seen: dict[str, float]) -> list[Finding]:
        queue = f"{TaskQueues().sandbox.queue}-{host_name(self.settings)}"
        present = seen.get(queue, float("inf")) < LIVENESS_SECONDS
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


def browser() -> Finding:
    """The state of the browser, which only runs with the toolset `browser` need."""
    return Finding(f"browser: {lacking() or chromium()}")


async def isolation(backend: SandboxBackend) -> Finding:
    try:
        report = await backend.probe()
    except (ClothoError, OSError) as error:
        return Finding(f"isolation: {error}", "give another sandbox.root, such as CLOTHO_SANDBOX__ROOT")
    if not report.isolated:
        return Finding(
            f"isolation: a sandbox here can't be proved that it {', '.join(report.missing)}",
            "allow bubblewrap to make namespaces here, or run tool workers on another machine",
        )
    bounds = f"memory {report.memory}, processes {report.processes}, disk {report.disk}"
    bounds = f"{bounds}, processors {report.processors}"
    user = "two users for each sandbox" if report.own_user else "the worker's user for all of them"
    user = f"{user}; {'with' if report.landlock else 'without'} Landlock"
    refused = f"; runs with `limits: required` are refused ({', '.join(report.unlimited)})"
    return Finding(f"isolation: proved; {user}; bounds: {bounds}{refused if report.unlimited else ''}")


async def containers(backend: SandboxBackend) -> Finding:
    """The state of the container engine, which only runs with `--sandbox docker` need."""
    report = await backend.probe()
    if not report.isolated:
        reasons = "; ".join(missing.removeprefix("starts at all: ") for missing in report.missing)
        return Finding(f"containers: none here ({reasons})")
    return Finding(f"containers: an engine answers; bounds: memory {report.memory}, disk {report.disk}")


def heartbeats(seen: dict[str, float]) -> list[Finding]:
    """Processes by their last heartbeats, the latest first. A missing one may have been stopped on purpose."""
    latest = sorted(seen.items(), key=lambda sign: sign[1])
    return [
        Finding(f"{name}: {'present' if age < LIVENESS_SECONDS else 'gone'}, last sign {age:.0f} s ago")
        for name, age in latest[:SEEN_SHOWN]
    ] or [Finding("none was ever seen")]
