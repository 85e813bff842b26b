"""Options that several commands share, and what they open."""

import asyncio
from typing import Annotated

import typer

from clotho.config import Settings, secret
from clotho.errors import InvalidInput
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

Host = Annotated[
    str, typer.Option(help="Address to listen at; give a token for one that other machines reach.")
]
TokenVariable = Annotated[
    str | None,
    typer.Option(help="Environment variable that holds the token that requests need.", metavar="NAME"),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(help="Another host name that requests may be addressed to; '*' for any.", metavar="NAME"),
]


def token_in(variable: str | None, what: str) -> str | None:
    """The token in the environment variable of a TokenVariable. Raises InvalidInput for an empty one."""
    if variable is None:
        return None
    if not (token := secret(variable, what)):
        raise InvalidInput(f"environment variable {variable} is empty; it must hold {what}")
    return token


async def open_journal(settings: Settings) -> Journal:
    return Journal(await asyncio.to_thread(open_store, settings.store, settings.s3))


async def existing_journal(settings: Settings) -> Journal:
    """The journal for commands that only read: a mistyped folder isn't created."""
    return Journal(await asyncio.to_thread(open_existing, settings.store, settings.s3))
