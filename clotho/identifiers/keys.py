"""The journal's layout: keys of runs, groups and rollouts, and prefixes of those that are numbered."""

from clotho.identifiers.ids import below, caller_at

# ---- runs ----

RUNS = "~runs/"
"""Prefix of all manifests: no run's name starts with a tilde."""
# not below the run's own prefix, which a deletion empties
DELETED = "~deleted/"
"""Prefix of the marks of deleted runs."""

run_opened_key = below("~opened")
endpoint_prefix = below("~endpoint/")
capabilities_prefix = below("~capabilities/")
campaign_request_prefix = below("~campaign-request/")
pause_prefix = below("~pause/")
"""The log of what is paused: the run, its groups, its rollouts."""
budget_prefix = below("~budget/")
spending_prefix = below("~spending/")
"""Prefix of the pages of spending, each of one model process."""
repairs_prefix = below("~repairs/")
items_prefix = below("~items/")
adapter_items_prefix = below("~adapter-items/")
"""Items that the adapter took one at a time, in order."""
adapter_config_prefix = below("~adapter-config/")
trainer_step_prefix = below("~trainer-step/")
registration_prefix = below("~registration/")
code_prefix = below("~code/")
"""Prefix of the source of the run's environment, by the number of the request for it."""
code_asked_prefix = below("~code-asked/")
"""The log of requests to take the environment's code as it is then."""
run_lock_prefix = below("~lock/")


def claims_prefix(run: str, sequence: str) -> str:
    """The log of who claimed which of a sequence's groups."""
    return f"{run}/~claims-{sequence}/"


def artifact_key(run: str, digest: str) -> str:
    """The key of an archive of files that rollouts left."""
    return f"{run}/~artifact/{digest}"


def manifest_key(run: str) -> str:
    return f"{RUNS}{run}"


def deleted_key(run: str) -> str:
    return f"{DELETED}{run}"


def items_key(run: str, chunk: int, start: int = 0) -> str:
    """The key of a chunk of items, or of the part of it that begins at its item `start`."""
    return f"{items_prefix(run)}{chunk:06}{f'-{start:02}' if start else ''}"


def adapter_item_key(run: str, number: int) -> str:
    return f"{adapter_items_prefix(run)}{number:08}"


# ---- groups ----

tools_key = below("tools")
attempt_prefix = below("attempt/")
scored_key = below("scored")
sending_prefix = below("sending/")
delivered_key = below("delivered")


def group_repairs_prefix(group: str) -> str:
    run, _, name = group.partition("/")
    return f"{repairs_prefix(run)}{name}/"


# ---- rollouts ----

prompt_key = below("prompt")
turn_prefix = below("turn/")
streams_prefix = below("stream/")
asked_prefix = below("asked/")
"""What an agent's program asked of the model, by turn."""
servers_prefix = below("server/")
"""The attempts that have served an agent's program."""
final_key = below("final")
"""The checkpoint before verification."""
epoch_prefix = below("epoch/")
answers_prefix = below("answers/")
"""The calls of verifiers, by epoch: of no use once there is a reward."""
verification_claims_prefix = below("claim/verification/")
reclaimed_prefix = below("reclaimed/")
"""Sandboxes that were given back while the rollout didn't use them."""
delegations_prefix = below("delegation/")
reward_key = below("reward")
end_key = below("end")
sealed_key = below("sealed")


def turn_key(rollout: str, turn: int) -> str:
    # padded, since stores list keys as text: 10 comes after 9
    return f"{turn_prefix(rollout)}{turn:04}"


def asked_key(rollout: str, turn: int) -> str:
    return f"{asked_prefix(rollout)}{turn:04}"


def asked_tools_key(rollout: str, digest: str) -> str:
    return f"{rollout}/asked-tools/{digest}"


def agent_key(rollout: str, lease: int) -> str:
    """The key of the entry that says how the agent's program ended in a lease's sandbox."""
    return f"{rollout}/agent/{lease}"


def is_turn_key(key: str) -> bool:
    # turns are counted by this: no other key may contain it
    return "/turn/" in key


def process_key(rollout: str, run_id: str) -> str:
    """The key of the model process that one run of the rollout's workflow has chosen."""
    # by run id: a workflow that is started again chooses anew, as its last process may be gone
    return f"{rollout}/process/{run_id}"


def stream_prefix(turn: str) -> str:
    """Prefix of the write-ahead of the turn at key `turn`."""
    rollout, _, number = turn.rpartition("/turn/")
    return f"{streams_prefix(rollout)}{number}/"


def call_key(rollout: str, call: str) -> str:
    """The key of a call: `call` names one of the rollout's own, or a place in its sandbox."""
    caller, own = caller_at(rollout, call)
    return f"{caller}/call/{own}"


def delegation_key(rollout: str, call: str) -> str:
    """The key of the entry on the child that a delegating call begins."""
    return f"{delegations_prefix(rollout)}{call}"


def call_begun_key(rollout: str, call: str) -> str:
    """The key that marks the beginning of a call that may be made only once."""
    return f"{rollout}/begun/{call}"


def call_part_key(rollout: str, call: str, part: str) -> str:
    """The key of a part of a call, such as a tool call made by code."""
    return f"{rollout}/part/{call}/{part}"


def raised_prefix(rollout: str, run_id: str) -> str:
    """Prefix of the verifier's exceptions in one run of the rollout's workflow."""
    # by run id: a retry has all attempts again
    return f"{rollout}/raised/{run_id}/"


def lease_key(rollout: str, number: int) -> str:
    return f"{rollout}/lease/{number}"


def grading_key(rollout: str, number: int, epoch: int) -> str:
    """The lease of a sandbox that has nothing of the agent's, beside its lease `number`."""
    return f"{lease_key(rollout, number)}/grading/{epoch}"


def control_key(rollout: str, number: int, epoch: int) -> str:
    """The lease of a sandbox without anything of the agent's, in which a verifier that failed is tried."""
    return f"{lease_key(rollout, number)}/control/{epoch}"


def verification_key(rollout: str, number: int, epoch: int) -> str:
    """The lease of a sandbox with what the agent left, for an epoch that follows one that changed it."""
    return f"{lease_key(rollout, number)}/verification/{epoch}"


def epoch_answers_prefix(rollout: str, epoch: int, lease: int) -> str:
    """Prefix of the calls that a verification epoch made in one lease; the next sandbox lacks their effects."""
    return f"{answers_prefix(rollout)}{epoch:03}/{lease}/"


def opened_key(rollout: str, epoch: int, lease: int, kind: str) -> str:
    """The key of the sandbox incarnation that a verification epoch has opened."""
    return f"{rollout}/opened/{epoch:03}/{lease}/{kind}"


def call_claims_prefix(rollout: str, call: str) -> str:
    """Prefix of the claims on a call that only one process may make at a time."""
    return f"{rollout}/claim/call/{call}/"


def turn_claims_prefix(rollout: str, turn: int) -> str:
    """Prefix of the claims on a turn that is taken over from the process which might have begun it."""
    return f"{rollout}/claim/sample/{turn:04}/"


def probe_key(rollout: str, process: str) -> str:
    """The lease of a sandbox that one process looks at before the rollout begins."""
    return f"{lease_key(rollout, 0)}/probe/{process}"


def lease_of(key: str) -> tuple[str, int]:
    """The rollout and number of a lease; of a sandbox for grading, those of the lease that it is beside."""
    rollout, _, rest = key.partition("/lease/")
    return rollout, int(rest.partition("/")[0])


def blob_key(rollout: str, digest: str) -> str:
    return f"{rollout}/checkpoint/{digest}"
