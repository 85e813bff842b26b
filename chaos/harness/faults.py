"""Faults strike a harness, or what it needs, at each phase of its call."""

import asyncio

from chaos.containers import engine
from chaos.containers.faults import ENGINE_OUTAGE, kill_engine, kill_service
from chaos.faults import (
    MODEL_OUTAGE,
    OUTAGE,
    TEMPORAL_LIMIT,
    WORKER_LIMIT,
    Fault,
    destroy_sandbox,
    kill_supervisor,
    kill_temporal,
    kill_workers,
)
from chaos.harness.scripts import SMALL, ScriptServer
from chaos.harness.tasks import STREAMS
from chaos.phases import STEP, Hit, Phase, at_provider, in_command
from chaos.plays import Name
from chaos.sandboxes import marks
from chaos.stage import LLM, TOOLS, Stage
from chaos.tools.faults import kill_program
from chaos.waiting import until


async def in_stream(stage: Stage, phase: Phase, rollout: str) -> Hit:
    """The harness' stream for the call has begun as well."""
    hit = await at_provider(stage, phase, rollout)

    async def begun() -> bool:
        return (await marks(stage, rollout, STREAMS)).total() > STEP

    await until(begun, "a stream that has begun")
    return hit


PHASES = {
    "call-came": Phase("before a call", ("journal.write[{asked}]",)),
    "call-flies": Phase("in flight", ("turn.asking[{turn}]",), wait=at_provider, holds_call=True),
    "call-half": Phase(
        "streamed half", ("turn.asking[{turn}]",), wait=in_stream, holds_call=True, halves_answer=True
    ),
    "call-answered": Phase("answered, not journalled", ("turn.answered[{turn}]",)),
    "call-kept": Phase("journalled, not delivered", ("turn.journalled[{turn}]",)),
    "call-done": Phase("between calls", wait=in_command, slows_command=True),
}


async def kill_sampling(stage: Stage, hit: Hit, rollout: str) -> None:
    await _kill(stage, hit, LLM)


async def kill_gateway(stage: Stage, hit: Hit, rollout: str) -> None:
    await _kill(stage, hit, TOOLS)


async def _kill(stage: Stage, hit: Hit, roles: str) -> None:
    await stage.kill_worker(roles)
    hit.release()
    await stage.restart_worker(roles)


async def kill_model_server(stage: Stage, hit: Hit, rollout: str) -> None:
    server = stage.upstream
    assert isinstance(server, ScriptServer)
    await server.kill()
    stage.provider.break_off()
    hit.release()
    await asyncio.sleep(MODEL_OUTAGE)
    await server.start()


FAULTS = {
    "harness-workers": Fault(
        "SIGKILL of all workers", kill_workers, WORKER_LIMIT, counts_from_strike=True, script=SMALL
    ),
    "harness-sampling": Fault(
        "SIGKILL of the process that samples",
        kill_sampling,
        WORKER_LIMIT,
        counts_from_strike=True,
        script=SMALL,
    ),
    "harness-gateway": Fault(
        "SIGKILL of the process that has the gateway",
        kill_gateway,
        WORKER_LIMIT,
        counts_from_strike=True,
        script=SMALL,
    ),
    "harness": Fault("SIGKILL of the harness", kill_program, script=SMALL),
    "harness-supervisor": Fault("SIGKILL of the sandbox's supervisor", kill_supervisor, script=SMALL),
    "harness-sandbox": Fault("the sandbox destroyed, files and all", destroy_sandbox, script=SMALL),
    "harness-engine": Fault(
        f"SIGKILL of the container engine, back after {ENGINE_OUTAGE:g} s; its containers run on",
        kill_service,
        script=SMALL,
    ),
    "harness-engine-whole": Fault(
        f"SIGKILL of the container engine and of everything in its containers, back after {ENGINE_OUTAGE:g} s",
        kill_engine,
        script=SMALL,
    ),
    "harness-temporal": Fault(
        f"SIGKILL of Temporal, back after {OUTAGE:g} s", kill_temporal, TEMPORAL_LIMIT, script=SMALL
    ),
    "harness-model": Fault(
        f"SIGKILL of the model server, back after {MODEL_OUTAGE:g} s", kill_model_server, script=SMALL
    ),
}
CONTAINED = ("harness-engine", "harness-engine-whole")
"""Faults of stages whose sandboxes are in containers."""


def there_is(name: Name) -> bool:
    """Whether this machine has what the cell takes."""
    return name[0] not in CONTAINED or engine.lacking() is None
