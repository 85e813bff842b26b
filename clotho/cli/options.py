"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from clotho.config import Settings
from clotho.journal import Journal
from clotho.store.filesystem import FilesystemStore

Store = Annotated[Path | None, typer.Option(help="Folder of the journal.", show_default=".clotho/store")]
Address = Annotated[
    str | None,
    typer.Option("--temporal", help="Temporal's address; else TEMPORAL_ADDRESS.", metavar="HOST:PORT"),
]


def open_journal(settings: Settings) -> Journal:
    return Journal(FilesystemStore(settings.store))
