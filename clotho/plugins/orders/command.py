"""`clotho serve-rollouts`: groups over HTTP, for trainers that order them by name."""

import asyncio
import socket
from collections.abc import Callable
from typing import Annotated

import typer

from clotho.cli.options import (
    Address,
    AllowedHosts,
    Host,
    NoToken,
    Store,
    TokenVariable,
    address_with,
    open_journal,
    token_for,
)
from clotho.config import Settings, load_settings
from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.listeners.listening import Server, listen, url_of
from clotho.plugins.orders.ordering import Orders
from clotho.temporal.connection import connect
from clotho.temporal.namespace import ensure_search_attributes

LIMITS = BodyLimits(sent_bytes=16 * 2**20, unpacked_bytes=16 * 2**20, seconds=60.0)
MOST_CONNECTIONS = 1_000
SECONDS_TO_FINISH = 3
"""Seconds that a shutdown leaves to open requests: those that wait for groups are sent again."""


def command(
    host: Host = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 picks a free one.", min=0, max=65_535)
    ] = 8010,
    token_variable: TokenVariable = None,
    no_token: NoToken = False,
    allow_host: AllowedHosts = None,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Serve groups over HTTP to trainers that order them by name; what they ordered outlives this process.

    A trainer opens a run, orders groups, waits for their rows and acknowledges them. Workers roll them out. Each
    request may be sent again. GET /openapi.json describes them.
    """
    settings = load_settings(store, temporal)
    with listen(host, port) as bound:
        token = token_for(bound, token_variable, without=no_token)
        access = Access(tuple(allow_host or ()), (), token.text if token else None)
        url = url_of(bound)
        said = f"rollout API at {url}{address_with(token, url)}"
        asyncio.run(serve(settings, bound, access, lambda: typer.echo(said)))


async def serve(settings: Settings, bound: socket.socket, access: Access, ready: Callable[[], None]) -> None:
    """Serve until a signal."""
    from clotho.plugins.orders.server import rollout_api  # FastAPI takes a while to import

    client = await connect(settings.temporal)
    await ensure_search_attributes(client)
    orders = Orders(client, await open_journal(settings), settings.run)
    server = Server(
        rollout_api(orders, access, LIMITS),
        ready,
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
    )
    try:
        await server.serve(sockets=[bound])
    finally:
        await orders.close()
