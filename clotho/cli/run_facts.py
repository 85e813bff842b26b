"""Facts that `clotho status` shows of a run: its model server, and the delivery of its items."""

import json
from collections import Counter

from clotho.identifiers.keys import delivered_key, scored_key
from clotho.journal import Journal
from clotho.models.backend import ServerCapabilities
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import Delivery
from clotho.rollouts.run import RunManifest
from clotho.runs.adapter_runs import adapter_groups


def settings_text(manifest: RunManifest, everything: bool) -> str | None:
    """The run's settings that a user can choose: those that differ from defaults, or all. None if it has none."""
    chosen = manifest.settings if everything else manifest.changed_settings
    shown = [
        f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in chosen.items()
    ]
    return f"settings: {' · '.join(shown)}" if shown else None


def served_text(served: ServerCapabilities) -> str:
    """The capabilities of a token-exact server, in words."""
    parts = (
        f"{served.backend} at {served.base_url}",
        f"renderer {served.renderer}",
        f"logprobs {served.logprobs_mode}",
        f"random numbers by {served.rng_scope}",
        f"context {served.context}" if served.context is not None else "context not said",
        f"weights {served.weight_version}"
        if served.weight_version is not None
        else "weights without a version",
    )
    return f"model server: {' · '.join(parts)}"


async def drawn_text(journal: Journal, run: str) -> str | None:
    """The state of the items that an adapter has drawn, as text; None where there are none."""
    groups = await adapter_groups(journal, run)
    if not groups:
        return None
    settled = await journal.read_many([delivered_key(group) for group in groups], Delivery)
    scored = await journal.read_many([scored_key(group) for group in groups], GroupEntry)
    finished = sum(entry is not None for entry, end in zip(scored, settled, strict=True) if end is None)
    reasons = Counter(end.reason for end in settled if end is not None)
    delivered = reasons.pop(None, 0)
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items(), key=str))
    open_ = len(groups) - delivered - reasons.total() - finished
    return (
        f"{len(groups)} items drawn: {open_} open, {finished} finished, {delivered} delivered, "
        f"{reasons.total()} dropped{f' ({dropped})' if dropped else ''}"
    )
