"""A wandb run of the adapter's own, where no trainer names one: of `process` and of `evaluate`."""

import logging
from datetime import UTC, datetime

import wandb

from clotho.atropos.config import ClothoEnvConfig

log = logging.getLogger("clotho.atropos")


def begin_wandb(config: ClothoEnvConfig, command: str) -> None:
    """Begin it if it is asked for, as Atropos does by default; without a key for wandb, say so and go on."""
    if not config.use_wandb:
        return
    stamp = datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    name = f"{config.wandb_name or config.run}-{command}-{stamp}"
    try:
        wandb.init(name=name, config=config.model_dump(mode="json"))
    except wandb.errors.UsageError as refused:
        log.warning("no wandb run, results are in files only: %s", refused)
