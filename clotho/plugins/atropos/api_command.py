"""`clotho atropos-api`: Atropos' trajectory API with a queue on disk."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from clotho import failpoints
from clotho.cli.options import AllowedHosts, Host, NoToken, Store, TokenVariable, address_with, token_for
from clotho.config import load_settings
from clotho.errors import InvalidInput
from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.listeners.listening import listen, url_of
from clotho.plugins.atropos.api_settings import AtroposApiSettings

FILE = "atropos-api.sqlite"


def command(
    host: Host = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 picks a free one.", min=0, max=65_535)
    ] = 8000,
    queue: Annotated[
        Path | None,
        typer.Option(help="The queue's file.", show_default=f"{FILE} beside the store", metavar="FILE"),
    ] = None,
    token_variable: TokenVariable = None,
    no_token: NoToken = False,
    allow_host: AllowedHosts = None,
    store: Store = None,
) -> None:
    """Serve the endpoints of Atropos' run-api; groups, registrations and steps outlive this process.

    A group sent with a `group_id` is queued once, however often it is sent. Requests may be addressed to this
    machine's addresses, its name and localhost; those of web pages are refused.
    """
    settings = load_settings(store)
    if importlib.util.find_spec("atroposlib") is None:
        raise InvalidInput("atroposlib is missing: pip install 'clotho-rollouts[atropos]'")
    from clotho.plugins.atropos.api.server import serve

    failpoints.arm(settings.fail, settings.fail_folder)
    api = settings.of(AtroposApiSettings)
    path = queue or settings.folder / FILE
    with listen(host, port) as bound:
        if token_variable is None and not no_token:
            token_variable = api.token_variable
        token = token_for(bound, token_variable, without=no_token)
        hosts = (*api.allowed_hosts, *(allow_host or ()))
        access = Access(hosts, api.allowed_origins, token.text if token else None)
        limits = BodyLimits(api.max_body_bytes, api.max_unpacked_bytes, api.body_seconds)
        url = url_of(bound)
        said = f"Atropos API at {url}, queue in {path}{address_with(token, url)}"
        serve(bound, path, access, limits, lambda: typer.echo(said))
