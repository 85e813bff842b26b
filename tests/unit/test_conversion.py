"""Results and failures as Temporal keeps them: small, since histories have one of each step."""

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.guard import activity_guard
from clotho.errors import ServiceUnavailable, StoreUnavailable
from clotho.frozen_model import FrozenModel
from clotho.rollouts.call import CallResult
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.turn import ToolCallReference, TurnRequest, TurnResult
from clotho.temporal.conversion import DATA_CONVERTER
from clotho.temporal.failures import to_application_error

SHOWN_BYTES = 4_096
"""What a server's `limit.mutableStateActivityFailureSize.error` is by default."""


TERMINAL = ToolCallReference(name="terminal", sandboxed=True)
TODO = ToolCallReference(name="todo", sandboxed=False)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (TurnRequest(rollout="run/g000000/r0", turn=0), '{"rollout":"run/g000000/r0","turn":0}'),
        (
            TurnResult(tool_calls=(TERMINAL, TODO), prompt_tokens=3, sampled_tokens=0, seconds=0.5),
            '{"tool_calls":[{"name":"terminal"},{"name":"todo","sandboxed":false}],'
            '"prompt_tokens":3,"sampled_tokens":0,"seconds":0.5}',
        ),
        (
            TurnResult(
                tool_calls=(),
                context_overflow=True,
                prompt_tokens=0,
                sampled_tokens=0,
                seconds=0.0,
                resumed=True,
            ),
            '{"tool_calls":[],"context_overflow":true,"resumed":true,'
            '"prompt_tokens":0,"sampled_tokens":0,"seconds":0.0}',
        ),
        (CallResult(seconds=0.0), '{"seconds":0.0}'),
        (
            CallResult(failed=True, seconds=0.5, wrote_state=("shell",), replayed=Fidelity.EXACT),
            '{"failed":true,"seconds":0.5,"wrote_state":["shell"],"replayed":"exact"}',
        ),
    ],
)
def test_a_history_has_what_differs_from_most_steps(value: FrozenModel, written: str) -> None:
    converter = DATA_CONVERTER.payload_converter
    [payload] = payloads = converter.to_payloads([value])
    assert payload.data.decode() == written
    assert converter.from_payloads(payloads, [type(value)]) == [value]


def failure_of(error: Exception) -> Failure:
    failure = Failure()
    DATA_CONVERTER.failure_converter.to_failure(error, DATA_CONVERTER.payload_converter, failure)
    return failure


def from_far_below(calls: int, message: str) -> None:
    if calls:
        return by_turns(calls - 1, message)
    raise OSError(28, message)


def by_turns(calls: int, message: str) -> None:
    """A traceback shows calls of one line once, however many there are."""
    from_far_below(calls, message)


@pytest.mark.parametrize("message", ["No space left on device", "everything " * 2_000, "\N{SNOWMAN}" * 2_000])
def test_a_step_that_is_retried_says_why_however_deep_and_long(message: str) -> None:
    try:
        try:
            from_far_below(40, message)
        except OSError as error:
            raise StoreUnavailable(f"store file:/runs: {message}") from error
    except StoreUnavailable as error:
        classified = to_application_error(error, 1)
        classified.__cause__ = error
    failure = failure_of(classified)
    assert failure.ByteSize() <= SHOWN_BYTES
    assert failure.message.startswith("store file:/runs: " + message[:20])
    assert failure.application_failure_info.type == "StoreUnavailable"


def test_a_failure_says_where_it_comes_from_as_far_as_there_is_room() -> None:
    try:
        from_far_below(40, "No space left on device")
    except OSError as error:
        failure = failure_of(error)
    assert failure.stack_trace.rstrip().endswith("raise OSError(28, message)")


def test_details_stay() -> None:
    failure = failure_of(ApplicationError("failed", ["r0"] * 5_000))
    found = DATA_CONVERTER.failure_converter.from_failure(failure, DATA_CONVERTER.payload_converter)
    assert isinstance(found, ApplicationError) and found.details == (["r0"] * 5_000,)


async def test_a_failure_says_nothing_that_a_library_said() -> None:
    async def attempt() -> None:
        async with activity_guard("run/g000000/r0"):
            try:
                raise ValueError("Illegal header value b'the-key'")
            except ValueError as error:
                raise ServiceUnavailable("the provider can't be reached") from error

    with pytest.raises(ApplicationError) as raised:
        await ActivityEnvironment().run(attempt)
    assert "the-key" not in str(failure_of(raised.value))
