"""Which groups of a run have closed, looked up for all of them at once.

A poll for each would exceed what Temporal allows a namespace: with 4,000 open groups it refused most of them, over
and over, and hardly any group could be started beside that.
"""

import asyncio
from collections.abc import Sequence

from temporalio.client import Client

from clotho.temporal.search_attributes import RUN
from clotho.temporal.states import workflow_ids

LOOK_SECONDS = 1.0
"""Between two looks of this process at a run's groups, at least."""
LOOKS_SHARE = 0.1
"""Most of the time that may pass in looks: ten thousand open groups are many pages."""


class Closings:
    """The looks of this process at the open groups of runs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next: dict[str, float] = {}
        """Run -> when the next look at its groups is due."""

    async def unlisted(self, run: str, groups: Sequence[str]) -> list[str]:
        """Those of a run's groups that Temporal doesn't list as running, once the next look is due.

        A group that has just begun may be among them.
        """
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._next.get(run, 0.0) - clock())
        began = clock()
        query = f"{RUN} = '{run}' AND WorkflowType = 'RolloutGroup' AND ExecutionStatus = 'Running'"
        running = set(await workflow_ids(self._client, query))
        self._next[run] = clock() + max(LOOK_SECONDS, (clock() - began) / LOOKS_SHARE)
        return [group for group in groups if group not in running]
