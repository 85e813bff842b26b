"""Options that several commands share, and what they open."""

import asyncio
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from clotho.config import Settings, secret_token
from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.journal.open_store import open_existing, open_store
from clotho.listeners.tokens import Token, token_of_port

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

Host = Annotated[str, typer.Option(help="Address to listen at.")]
TokenVariable = Annotated[
    str | None,
    typer.Option(
        help="Environment variable that holds the token that requests need.",
        show_default="CLOTHO_TOKEN; where that isn't set, a file of the port's",
        metavar="NAME",
    ),
]
NoToken = Annotated[
    bool, typer.Option("--no-token", help="Answer requests without a token, whoever sends them.")
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(help="Another host name that requests may be addressed to; '*' for any.", metavar="NAME"),
]


def token_for(bound: socket.socket, variable: str | None, *, without: bool) -> Token | None:
    """The token of a server that listens at `bound`; None `without` one. Raises InvalidInput."""
    address, port = bound.getsockname()[:2]
    if not without:
        named = variable and Token(secret_token(variable, "the token that requests need"), variable)
        return named or token_of_port(port)
    if variable is not None:
        raise InvalidInput("give either --no-token or --token-variable")
    if not ip_address(address).is_loopback:
        typer.echo(f"no token is asked for: whoever reaches {address} is served", err=True)
    return None


def address_with(token: Token | None, url: str) -> str:
    """A line with a server's URL that contains its token, for clients that take a URL alone; empty without one."""
    if token is None:
        return ""
    kept = f", kept in {token.source}" if isinstance(token.source, Path) else ""
    return f"\nwith its token{kept}: {token.in_url(url)}"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


async def open_journal(settings: Settings) -> Journal:
    return Journal(await asyncio.to_thread(open_store, settings.store, settings))


async def existing_journal(settings: Settings) -> Journal:
    """The journal for commands that only read: a mistyped folder isn't created."""
    return Journal(await asyncio.to_thread(open_existing, settings.store, settings))
