"""`clotho atropos-api`: Atropos' trajectory API with a queue on disk."""

import importlib.util
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from clotho import failpoints
from clotho.cli.options import Store
from clotho.config import load_settings, secret
from clotho.errors import InvalidInput
from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits

FILE = "atropos-api.sqlite"


def command(
    host: Annotated[
        str, typer.Option(help="Address to listen at; give a token for one that other machines reach.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 picks a free one.", min=0, max=65_535)
    ] = 8000,
    queue: Annotated[
        Path | None,
        typer.Option(help="The queue's file.", show_default=f"{FILE} beside the store", metavar="FILE"),
    ] = None,
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
) -> None:
    """Serve the endpoints of Atropos' run-api; groups, registrations and steps outlive this process.

    A group sent with a `group_id` is queued once, however often it is sent. Requests may be addressed to this
    machine's addresses, its name and localhost; those of web pages are refused.
    """
    settings = load_settings(store)
    if importlib.util.find_spec("atroposlib") is None:
        raise InvalidInput("atroposlib is missing: pip install 'clotho-rollouts[atropos]'")
    from clotho.atropos.api.server import serve

    failpoints.arm(settings.fail, settings.fail_folder)
    api = settings.atropos_api
    token = _token(token_variable or api.token_variable)
    path = queue or settings.folder / FILE
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InvalidInput(f"{host}:{port} can't be listened at: {error.strerror or error}") from error
    with bound:
        name, actual, *_ = bound.getsockname()
        url = f"http://{f'[{name}]' if ':' in name else name}:{actual}"
        if token is None and not ip_address(name).is_loopback:
            typer.echo(f"whoever reaches {name} may read and empty the queue: see --token-variable", err=True)
        access = Access((*api.allowed_hosts, *(allow_host or ())), api.allowed_origins, token)
        limits = BodyLimits(api.max_body_bytes, api.max_unpacked_bytes, api.body_seconds)
        serve(bound, path, access, limits, lambda: typer.echo(f"Atropos API at {url}, queue in {path}"))


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (token := secret(variable, "the token of the Atropos API")):
        raise InvalidInput(
            f"environment variable {variable} is empty; it must hold the token of the Atropos API"
        )
    return token
