"""`clotho atropos-api`: Atropos' trajectory API with a queue on disk."""

import importlib.util
import socket
from pathlib import Path
from typing import Annotated

import typer

from clotho import failpoints
from clotho.cli.options import Store
from clotho.config import load_settings
from clotho.errors import InvalidInput

FILE = "atropos-api.sqlite"


def command(
    host: Annotated[
        str, typer.Option(help="The address to listen at; nobody is asked for a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 picks a free one.", min=0, max=65_535)] = 8000,
    queue: Annotated[
        Path | None,
        typer.Option(help="The queue's file.", show_default=f"{FILE} beside the store", metavar="FILE"),
    ] = None,
    store: Store = None,
) -> None:
    """Serve the endpoints of Atropos' run-api; groups, registrations and steps outlive this process.

    A group sent with a `group_id` is queued once, however often it is sent.
    """
    settings = load_settings(store)
    if importlib.util.find_spec("atroposlib") is None:
        raise InvalidInput("atroposlib is missing: pip install 'clotho-rollouts[atropos]'")
    from clotho.atropos_api.server import serve

    failpoints.arm(settings.fail, settings.fail_folder)
    path = queue or settings.folder / FILE
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InvalidInput(f"{host}:{port} can't be listened at: {error.strerror or error}") from error
    with bound:
        name, actual, *_ = bound.getsockname()
        url = f"http://{f'[{name}]' if ':' in name else name}:{actual}"
        serve(bound, path, lambda: typer.echo(f"Atropos API at {url}, queue in {path}"))
