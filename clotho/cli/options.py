"""Options that several commands share, and what they open."""

import asyncio
from typing import Annotated

import typer

from clotho.config import Settings
from clotho.journal import Journal
from clotho.journal.open_store import open_existing, open_store

Store = Annotated[
    str | None,
    typer.Option(
        help="Where the journal is: a folder or s3://bucket/prefix; else CLOTHO_STORE.",
        show_default=".clotho/store",
        metavar="STORE",
    ),
]
Address = Annotated[
    str | None,
    typer.Option("--temporal", help="Temporal's address; else TEMPORAL_ADDRESS.", metavar="HOST:PORT"),
]


async def open_journal(settings: Settings) -> Journal:
    return Journal(await asyncio.to_thread(open_store, settings.store, settings.s3))


async def existing_journal(settings: Settings) -> Journal:
    """The journal for commands that only read: a mistyped folder isn't created."""
    return Journal(await asyncio.to_thread(open_existing, settings.store, settings.s3))
