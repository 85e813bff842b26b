"""The wandb run of `process` and `evaluate`, for which no trainer names one."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import wandb

from clotho.plugins.atropos.config import ClothoEnvConfig

log = logging.getLogger("clotho.plugins.atropos")


@contextmanager
def wandb_run(config: ClothoEnvConfig, command: str) -> Iterator[None]:
    """Keep a wandb run open, and write all of it before the body counts as done.

    Atropos asks for one by default; without a key for wandb, say so and go on.
    """
    if not config.use_wandb:
        yield
        return
    stamp = datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    name = f"{config.wandb_name or config.run}-{command}-{stamp}"
    try:
        run = wandb.init(name=name, config=config.model_dump(mode="json"))
    except wandb.errors.UsageError as refused:
        log.warning("no wandb run, results are in files only: %s", refused)
        yield
        return
    with run:
        yield
