"""`clotho serve-rollouts`: groups over HTTP, for trainers that order them by name."""

import asyncio
import socket
from ipaddress import ip_address
from typing import Annotated

import typer
import uvicorn

from clotho.cli.options import Address, Store, open_journal
from clotho.config import Settings, load_settings, secret
from clotho.errors import InvalidInput
from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.listeners.early_answers import EarlyAnswers
from clotho.orders.ordering import Orders
from clotho.orders.server import RolloutApi
from clotho.temporal.connection import connect
from clotho.temporal.namespace import ensure_search_attributes

LIMITS = BodyLimits(sent_bytes=16 * 2**20, unpacked_bytes=16 * 2**20, seconds=60.0)
MOST_CONNECTIONS = 1_000
SECONDS_TO_FINISH = 3
"""Seconds that a shutdown leaves to open requests: those that wait for groups are sent again."""


def command(
    host: Annotated[
        str, typer.Option(help="Address to listen at; give a token for one that other machines reach.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 picks a free one.", min=0, max=65_535)
    ] = 8010,
    token_variable: Annotated[
        str | None,
        typer.Option(help="Environment variable that holds the token that requests need.", metavar="NAME"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name that requests may be addressed to; '*' for any.", metavar="NAME"
        ),
    ] = None,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Serve groups over HTTP to trainers that order them by name; what they ordered outlives this process.

    A trainer opens a run, orders groups, waits for their rows and acknowledges them. Workers roll them out. Each
    request may be sent again. GET /openapi.json describes them.
    """
    settings = load_settings(store, temporal)
    token = None
    if token_variable is not None and not (token := secret(token_variable, "the token of the rollout API")):
        raise InvalidInput(f"environment variable {token_variable} is empty; it must hold the token")
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InvalidInput(f"{host}:{port} can't be listened at: {error.strerror or error}") from error
    with bound:
        name = bound.getsockname()[0]
        if token is None and not ip_address(name).is_loopback:
            typer.echo(f"whoever reaches {name} may order rollouts: see --token-variable", err=True)
        asyncio.run(serve(settings, bound, Access(tuple(allow_host or ()), (), token)))


async def serve(settings: Settings, bound: socket.socket, access: Access) -> None:
    """Serve until a signal."""
    client = await connect(settings.temporal)
    await ensure_search_attributes(client)
    orders = Orders(client, await open_journal(settings), settings.run)
    server = uvicorn.Server(
        uvicorn.Config(
            EarlyAnswers(RolloutApi(orders, access, LIMITS)),
            ws="none",
            proxy_headers=False,
            log_level="warning",
            lifespan="off",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=SECONDS_TO_FINISH,
        )
    )
    name, port, *_ = bound.getsockname()
    typer.echo(f"rollout API at http://{f'[{name}]' if ':' in name else name}:{port}")
    try:
        await server.serve(sockets=[bound])
    finally:
        await orders.close()
