"""`clotho codec`: a codec server, with which the Temporal UI shows texts of the store."""

from typing import Annotated
from urllib.parse import urlsplit

import typer

from clotho.cli.options import NoToken, Store, TokenVariable, token_for
from clotho.config import load_settings
from clotho.errors import InvalidInput
from clotho.journal.open_store import open_existing
from clotho.listeners.access import Access
from clotho.listeners.listening import listen, url_of

HOST = "127.0.0.1"


def command(
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 picks a free one.", min=0, max=65_535)
    ] = 8235,
    ui: Annotated[
        str | None,
        typer.Option(
            help="Address of the Temporal UI, as the browser has it.",
            show_default="that of a running clotho dev, or temporal.ui",
            metavar="URL",
        ),
    ] = None,
    token_variable: TokenVariable = None,
    no_token: NoToken = False,
    store: Store = None,
) -> None:
    """Let the Temporal UI show what its payloads refer to: prompts, turns, calls and rewards.

    Give the address that it prints, token and all, to the UI as its Codec Server (the glasses at the top).
    Only this machine can reach it, and only pages of that UI may ask; it changes nothing.
    """
    settings = load_settings(store)
    origin = origin_of(ui or settings.temporal.ui)
    from clotho.plugins.codec.server import serve

    opened = open_existing(settings.store, settings)
    with listen(HOST, port) as bound:
        token = token_for(bound, token_variable, without=no_token)
        url = url_of(bound) + (f"/{token.shown}" if token else "")
        access = Access(origins=(origin,), token=token.text if token else None)
        said = f"codec of {opened.identity} for {origin} at {url}; Ctrl-C ends it"
        serve(bound, opened, access, lambda: typer.echo(said))


def origin_of(url: str) -> str:
    """The origin of the pages at `url`. Raises InvalidInput for what is no URL of a page."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidInput(f"{url!r} is no address of a Temporal UI: give one such as http://127.0.0.1:8233")
    return f"{parts.scheme}://{parts.netloc.lower()}"
