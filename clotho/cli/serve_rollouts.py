"""`clotho serve-rollouts`: groups over HTTP, for trainers that order them by name."""

import asyncio
import socket
from ipaddress import ip_address
from typing import Annotated

import typer

from clotho.cli.options import (
    Address,
    AllowedHosts,
    Host,
    Store,
    TokenVariable,
    open_journal,
    token_in,
)
from clotho.config import Settings, load_settings
from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.listening import Server, listen, url_of
from clotho.orders.ordering import Orders
from clotho.orders.server import RolloutApi
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
    allow_host: AllowedHosts = None,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Serve groups over HTTP to trainers that order them by name; what they ordered outlives this process.

    A trainer opens a run, orders groups, waits for their rows and acknowledges them. Workers roll them out. Each
    request may be sent again. GET /openapi.json describes them.
    """
    settings = load_settings(store, temporal)
    token = token_in(token_variable, "the token of the rollout API")
    with listen(host, port) as bound:
        name = bound.getsockname()[0]
        if token is None and not ip_address(name).is_loopback:
            typer.echo(f"whoever reaches {name} may order rollouts: see --token-variable", err=True)
        asyncio.run(serve(settings, bound, Access(tuple(allow_host or ()), (), token)))


async def serve(settings: Settings, bound: socket.socket, access: Access) -> None:
    """Serve until a signal."""
    client = await connect(settings.temporal)
    await ensure_search_attributes(client)
    orders = Orders(client, await open_journal(settings), settings.run)
    server = Server(
        EarlyAnswers(RolloutApi(orders, access, LIMITS)),
        lambda: typer.echo(f"rollout API at {url_of(bound)}"),
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
    )
    try:
        await server.serve(sockets=[bound])
    finally:
        await orders.close()
