"""A run's rollouts in the store: their ends and their sandboxes' losses."""

from collections.abc import Sequence
from itertools import count, zip_longest

from clotho.identifiers.ids import group_of
from clotho.identifiers.keys import agent_key, attempt_prefix, end_key, lease_key
from clotho.journal import Journal
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.group import AttemptEntry, SiblingFailure
from clotho.rollouts.lease import Fidelity, LeaseEntry
from clotho.rollouts.rollout import EndEntry


async def read_end(journal: Journal, rollout: str) -> EndEntry | None:
    return await journal.read(end_key(rollout), EndEntry)


async def last_failure(journal: Journal, rollout: str) -> SiblingFailure | None:
    """Why the rollout, or its group, failed in the group's last attempt; None if it didn't."""
    keys = await journal.keys(attempt_prefix(group_of(rollout)))
    attempt = await journal.read(keys[-1], AttemptEntry) if keys else None
    failures = attempt.failures if attempt is not None else ()
    return next((each for each in failures if each.workflow in (rollout, group_of(rollout))), None)


async def is_superseded(journal: Journal, rollout: str, number: int) -> bool:
    """Whether lease `number` of the rollout was superseded by the next one."""
    return await journal.read(lease_key(rollout, number + 1), LeaseEntry) is not None


async def sandbox_losses(
    journal: Journal, rollout: str, remembered: Sequence[Fidelity] = ()
) -> tuple[Fidelity, ...]:
    """The fidelity of each sandbox that replaced a lost one, in order.

    The journal has those of earlier workflows of the rollout; `remembered` are those of the present one, which a
    late replay may have made worse than the journal says.
    """
    recorded: list[Fidelity] = []
    for number in count(1):
        if (entry := await journal.read(lease_key(rollout, number), LeaseEntry)) is None:
            break
        if entry.fidelity is not None:  # else the one before was given back while it was idle
            recorded.append(entry.fidelity)
    # the worse of each pair: Fidelity is declared from the best to the worst
    pairs = zip_longest(recorded, remembered, fillvalue=Fidelity.EXACT)
    return tuple(max(pair, key=list(Fidelity).index) for pair in pairs)


async def program_ends(journal: Journal, rollout: str, losses: int) -> dict[int, ProgramEntry]:
    """Lease -> how the agent's program ended in its sandbox; the rollout has lost `losses` sandboxes."""
    numbers = range(losses + 1)
    entries = await journal.read_many([agent_key(rollout, number) for number in numbers], ProgramEntry)
    return {number: entry for number, entry in zip(numbers, entries, strict=True) if entry is not None}


def program_end_text(program: str, lease: int, entry: ProgramEntry) -> Sequence[str]:
    """Sentences on a program's end, and on how its calls compare with those of earlier starts."""
    calls = f"{entry.calls} call{'' if entry.calls == 1 else 's'}"
    end = f"{program} ended with exit code {entry.end.exit_code} after {calls} of the model"
    told = [f"{end} and {entry.end.seconds:.1f} s of its own work"]
    if lease:
        told.append(f"started anew in sandbox {lease}: {entry.matched} of {calls} answered from the journal")
    if entry.diverged_at is not None:
        told.append(f"call {entry.diverged_at} was the first that the earlier start hadn't made")
    if entry.repeated:
        times = "once" if entry.repeated == 1 else f"{entry.repeated} times"
        told.append(f"calls were answered again {times}: their connections were cut")
    return told
