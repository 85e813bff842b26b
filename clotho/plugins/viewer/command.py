"""`clotho view`: the runs of a store in a browser on this machine."""

import socket
from typing import Annotated

import typer

from clotho.cli.options import Address, NoToken, Store, TokenVariable, token_for
from clotho.config import cache_folder, load_settings
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.errors import InvalidInput
from clotho.journal.open_store import open_existing
from clotho.listeners.access import PageAccess
from clotho.listeners.listening import listen, url_of

HOST = "127.0.0.1"
PORT = 8234


def command(
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to listen at; 0 picks a free one.",
            show_default=f"{PORT}, or a free one where that is taken",
            min=0,
            max=65_535,
        ),
    ] = None,
    operate: Annotated[
        bool, typer.Option("--operate", help="Offer to pause, resume, cancel and retry what is shown.")
    ] = False,
    token_variable: TokenVariable = None,
    no_token: NoToken = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Show runs, groups and rollouts in a browser, live, at the address that it prints.

    Only this machine can reach it, a browser needs the token in that address, and without --operate it changes
    nothing. It needs no Temporal server: without one, it doesn't know which runs are running.
    """
    settings = load_settings(store, temporal)
    from clotho.plugins.viewer.app import Viewed, serve

    opened = open_existing(settings.store, settings)
    with listen_at(port) as bound:
        token = token_for(bound, token_variable, without=no_token)
        viewed = Viewed(
            store=opened,
            temporal=settings.temporal,
            cache=cache_folder() / "viewer",
            bundled={TINY: BUNDLED},
            access=PageAccess(token=token.text if token else None),
            operating=operate,
        )
        said = (
            f"{opened.identity} at {url_of(bound)}{f'/?token={token.shown}' if token else ''}; Ctrl-C ends it"
        )
        serve(bound, viewed, lambda: typer.echo(said))


def listen_at(port: int | None) -> socket.socket:
    """A socket at `port`, or at the usual one or a free one. Raises InvalidInput for a port in use."""
    if port is not None:
        return listen(HOST, port)
    try:
        return listen(HOST, PORT)
    except InvalidInput:
        return listen(HOST, 0)
