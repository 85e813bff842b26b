"""What wandb is told of a group: counts, and conversations that can be read."""

from clotho.models.backend import SampledTokens, SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.plugins.atropos.metrics import Tally
from clotho.plugins.atropos.wandb_table import shown_rows
from clotho.rollouts.call import CallEntry, ToolError
from clotho.rollouts.group import GroupEntry, RepairEntry, SiblingFailure
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.rollouts.transcript import Step, Transcript
from clotho.rollouts.turn import TurnEntry
from clotho.training.siblings import Sibling

GROUP = "run/i-a.0"
CALL = ToolCall(id="1", function=FunctionCall(name="terminal", arguments='{"command": "ls"}'))
FAILED = ToolError(turn=0, tool_name="terminal", arguments="{}", error="no such file", tool_result="{}")
REPAIR = RepairEntry(
    failure=SiblingFailure(workflow=f"{GROUP}/r0", kind="StoreUnavailable", reason="out"),
    turns=1,
    sampled_tokens=2,
    continued_as=f"{GROUP}/r0",
)


def summary(number: int, ending: Ending, **changes: object) -> RolloutSummary:
    fields = {
        "rollout": f"{GROUP}/r{number}",
        "ending": ending,
        "score": float(number),
        "turns": 2 + number,
        "tool_calls": 1,
        "tool_errors": 1 - number,
        "prompt_tokens": 10,
        "sampled_tokens": 5,
        "active_seconds": 1.0,
        **changes,
    }
    return RolloutSummary.model_validate(fields)


def transcript(error: ToolError | None, resumed_at: tuple[int, ...]) -> Transcript:
    tokens = SampledTokens(
        prompt_ids=(1,), ids=(2, 3), logprobs=(-1.0, -1.0), logprobs_mode="raw", resumed_at=resumed_at
    )
    turn = SampledTurn(
        message=ChatMessage(role="assistant", tool_calls=(CALL,)),
        finish_reason="stop",
        usage=Usage(),
        model="m",
        sampling=Sampling(),
        started=0.0,
        seconds=0.0,
        tokens=tokens,
    )
    call = CallEntry(
        tool="terminal",
        content="{}",
        error=error,
        state={},
        lease=None,
        started=0.0,
        seconds=0.0,
        changes=False,
    )
    prompt = Prompt(item={}, messages=(ChatMessage(role="user", content="go"),), seed=1)
    return Transcript(prompt=prompt, steps=(Step(turn=TurnEntry(sampled=turn), calls=(call,)),))


def test_counts_are_of_outcomes_errors_turns_tokens_and_what_was_restarted() -> None:
    disturbed = summary(
        0, Ending(outcome=Outcome.COMPLETED), losses=(Fidelity.EXACT, Fidelity.DIVERGED), resumed_turns=1
    )
    siblings = (
        Sibling.of(disturbed, transcript(FAILED, (1,)), (REPAIR,)),
        Sibling.of(
            summary(1, Ending(outcome=Outcome.LIMIT_REACHED, limit="max_turns")), transcript(None, ())
        ),
    )
    entry = GroupEntry(
        item={},
        toolsets=("terminal",),
        siblings=tuple(sibling.summary for sibling in siblings),
        repairs=(REPAIR,),
    )
    tally = Tally()
    tally.add(entry, siblings)
    tally.add_dropped("same_scores")
    assert tally.flush() == {
        "train/dropped/same_scores": 1,
        "train/rollouts_scored": 2,
        "train/reward_mean": 0.5,
        "train/turns_mean": 2.5,
        "train/sampled_tokens": 10,
        "train/prompt_tokens": 20,
        "train/tool_calls": 2,
        "train/tool_errors_count": 1,
        "train/tool_error_details": "turn 0 terminal({}): no such file",
        "train/repairs": 1,
        "train/resumed_turns": 1,
        "train/sandbox_losses": 2,
        "train/disturbed/sandbox_lost": 1,
        "train/disturbed/diverged": 1,
        "train/disturbed/resumed": 1,
        "train/disturbed/repaired": 1,
        "train/outcome/completed": 1,
        "train/outcome/limit_reached": 1,
    }
    assert tally.flush() == {}


def test_rows_are_shown_as_conversations() -> None:
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "List."},
        {
            "role": "assistant",
            "content": "Well.",
            "reasoning_content": "t" * 1_000,
            "tool_calls": [{"function": {"name": "terminal", "arguments": "a" * 1_000}}],
        },
        {"role": "tool", "content": "r" * 1_000},
        {"role": "assistant", "content": ""},
    ]
    group = {"tokens": [[1], [2], [3]], "messages": [said, [], said], "scores": [1.0, 0.0, 0.5]}
    (text, score), other = shown_rows(group, 2, lambda tokens: f"decoded {tokens}")
    assert (score, other) == (1.0, ("decoded [2]", 0.0))
    parts = text.split("\n\n")
    titles = [part.partition("\n")[0].partition("(")[0] for part in parts]
    assert titles == [
        "[SYSTEM]",
        "[USER]",
        "[ASSISTANT thinking]",
        "[ASSISTANT]",
        "[TOOL CALL] terminal",
        "[TOOL RESULT]",
    ]
    assert [len(part) for part in (parts[2], parts[4], parts[5])] == [
        len("[ASSISTANT thinking]\n") + 300,
        len("[TOOL CALL] terminal()") + 200,
        len("[TOOL RESULT]\n") + 500,
    ]
