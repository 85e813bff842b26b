"""The sweeper: it delivers finished groups that no worker of Atropos waits for."""

import asyncio
import logging
from typing import Any, Protocol

from clotho.errors import ClothoError, GroupRejected, Rejection, Unavailable
from clotho.plugins.atropos.adapter_run import AdapterRun
from clotho.runs.ledger import Claim

SWEEP_SECONDS = 1.0
HOOK_FAILURES = 3
"""Times that an author's hook may fail for one group before it is dropped."""

log = logging.getLogger("clotho.plugins.atropos")


class Sweeping(Protocol):
    """The parts of ClothoEnv that the sweeper uses."""

    backlog: list[Any]

    @property
    def adapter_run(self) -> AdapterRun: ...

    async def collect_trajectories(self, item: Any) -> Any: ...
    async def postprocess_histories(self, trajectories: Any) -> Any: ...
    async def handle_send_to_api(self, scored_data: Any, item: Any) -> None: ...


async def sweep(env: Sweeping) -> None:
    """Deliver finished groups until cancelled; failures are retried."""
    run = env.adapter_run
    await run.ready.wait()
    while True:
        try:
            for claim in await run.ledger.finished(run.pending.idle()):
                # asked for each: a worker may have taken it while the ones before were delivered
                if run.is_free(claim):
                    await _sweep_up(env, claim)
        except ClothoError as error:
            log.warning("sweeping: %s", error)
        # the adapter goes on without its sweeper, and nobody would see that groups lie there
        except Exception:
            log.exception("sweeping failed, and is tried again")
        await asyncio.sleep(SWEEP_SECONDS)


async def _sweep_up(env: Sweeping, claim: Claim) -> None:
    """Deliver the group through the author's hooks, as a worker of Atropos would."""
    run = env.adapter_run
    item = run.pending.item(claim)
    with run.pending.hold(claim):
        try:
            trajectories, further = await env.collect_trajectories(item)
            env.backlog.extend(further)
            if trajectories is not None:
                trajectories = await env.postprocess_histories(trajectories)
            # collect_trajectories has dropped a rejected group, and settled it
            if claim in run.pending:
                await env.handle_send_to_api(trajectories, item)
        # an outage isn't the hook's failure, and doesn't count as one
        except Unavailable:
            raise
        except Exception:
            log.exception("%s: a hook of the environment failed", claim.group)
            if run.pending.put_back(claim) >= HOOK_FAILURES:
                failed = GroupRejected(
                    Rejection.ENVIRONMENT_FAILED, f"its hooks failed {HOOK_FAILURES} times"
                )
                await run.drop(claim, failed)
