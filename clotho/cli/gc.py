"""`clotho gc`: remove leftovers from the store and from this host."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from clotho.cli.doctor.sandbox_audit import SandboxAudit
from clotho.cli.options import Address, Store, existing_journal
from clotho.cli.terminal import amount, make_console, one_line
from clotho.config import Settings, load_settings
from clotho.journal.folder import unfinished_writes
from clotho.runs.leftovers import find_leftovers
from clotho.sandbox.registry import BackendsBeside, open_backend
from clotho.temporal.connection import connect


def command(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")
    ] = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Remove leftovers; runs with open workflows are left alone.

    Leftovers are entries of deleted runs; entries and checkpoints beside a rollout's sealed object; unfinished
    writes of killed processes; sandboxes of this host that no rollout needs, and expired ones of other stores.
    """
    settings = load_settings(store, temporal)
    asyncio.run(collect(settings, make_console(), dry_run))


async def collect(settings: Settings, console: Console, dry_run: bool) -> None:
    """Name each leftover, and remove it unless it is a `dry_run`."""
    journal = await existing_journal(settings)
    client = await connect(settings.temporal)
    entries = sandboxes = 0
    for leftover in await find_leftovers(journal, client):
        one_line(console, f"{leftover.what}: {amount(len(leftover.keys), 'entry', 'entries')}")
        entries += len(leftover.keys)
        if not dry_run:
            await journal.delete(leftover.keys)
    files = await asyncio.to_thread(unfinished_writes, settings.store)
    if files:
        one_line(console, f"unfinished writes of killed processes: {amount(len(files), 'entry', 'entries')}")
        entries += len(files)
        if not dry_run:
            for file in files:
                await asyncio.to_thread(file.unlink, missing_ok=True)
    folder = settings.sandbox.folder_of(journal.store_identity)
    own = open_backend(settings, folder)
    audit = SandboxAudit(own, journal, client)
    for held in await (audit.orphans() if dry_run else audit.clean()):
        one_line(console, f"sandbox {held.fact}")
        sandboxes += 1
    for backend in (own, *await asyncio.to_thread(BackendsBeside(settings, folder))):
        for name in await (backend.expired() if dry_run else backend.reap()):
            one_line(console, f"sandbox {name}: expired")
            sandboxes += 1
    done = "would be removed" if dry_run else "removed"
    one_line(
        console, f"{done}: {amount(entries, 'entry', 'entries')}, {amount(sandboxes, 'sandbox', 'sandboxes')}"
    )
