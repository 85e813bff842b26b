"""Options that several commands share."""

from typing import Annotated

import typer

from clotho.config import Settings
from clotho.journal import Journal
from clotho.store.open import open_store

Store = Annotated[
    str | None,
    typer.Option(help="Where the journal is: a folder or s3://bucket/prefix.", show_default=".clotho/store"),
]
Address = Annotated[
    str | None,
    typer.Option("--temporal", help="Temporal's address; else TEMPORAL_ADDRESS.", metavar="HOST:PORT"),
]


def open_journal(settings: Settings) -> Journal:
    return Journal(open_store(settings.store, settings.s3))
