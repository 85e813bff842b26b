"""An environment that wraps what it inherits, as environments of the in-memory design do.

python -m tests.atropos.wrapped_files process …
"""

import logging
from typing import Any

from examples.scored_files import ScoredFiles

log = logging.getLogger("wrapped_files")


class WrappedFiles(ScoredFiles):
    """Halves each rollout's score, and adds to each group what a distilling trainer wants."""

    name = "wrapped-files"

    async def collect_trajectory(self, item: dict[str, str]) -> Any:
        row, further = await super().collect_trajectory(item)
        assert row is not None
        return {**row, "scores": row["scores"] / 2}, further

    async def collect_trajectories(self, item: dict[str, str]) -> Any:
        self.tools, _ = self._resolve_tools_for_group()
        group, further = await super().collect_trajectories(item)
        assert isinstance(group, dict)
        group["distill_token_ids"] = [[[token] for token in tokens] for tokens in group["tokens"]]
        return group, further

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        log.warning("rewards kept: %s, tools: %s", len(self.rewards), len(self.tools))
        await super().wandb_log(wandb_metrics)


if __name__ == "__main__":
    WrappedFiles.cli()
