"""How values and failures cross into Temporal and back."""

from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    PayloadConverter,
)
from temporalio.exceptions import ApplicationError

from clotho.errors import truncate_middle
from clotho.escaping import for_terminal

TRACE_LIMIT = 1_000
"""Characters of a traceback: its last calls."""
FAILURE_BYTES = 3_500
"""A server shows nothing of a pending step's failure that has more than 4 KB, not even its message."""
MOST_BYTES = 4
"""Of one character."""

_PYDANTIC = tuple(PydanticPayloadConverter().converters.values())


class Payloads(CompositePayloadConverter):
    """The SDK's for pydantic, made once: the SDK makes one for each workflow, and another for each of its tasks."""

    def __init__(self) -> None:
        super().__init__(*_PYDANTIC)


class Failures(DefaultFailureConverter):
    """The SDK's, fit to be shown: what went wrong stays, and where as far as there is room."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        try:
            super().to_failure(exception, payload_converter, failure)
        except UnicodeEncodeError:  # a surrogate on its own, somewhere in the message or those of its causes
            failure.Clear()
            super().to_failure(_encodable(exception), payload_converter, failure)
        if not failure.HasField("application_failure_info"):
            return  # a step's or a child's: the failure inside it says what happened
        failure.message = truncate_middle(for_terminal(failure.message))
        failure.stack_trace = for_terminal(failure.stack_trace[-TRACE_LIMIT:])
        if _size(failure) > FAILURE_BYTES:
            failure.ClearField("cause")
        if _size(failure) > FAILURE_BYTES:
            failure.ClearField("stack_trace")
            failure.message = truncate_middle(failure.message, FAILURE_BYTES // MOST_BYTES)


def _encodable(exception: BaseException) -> ApplicationError:
    """The error without its causes, in text that can be encoded."""
    message = for_terminal(str(exception))
    if isinstance(exception, ApplicationError):
        return ApplicationError(
            message,
            type=exception.type,
            non_retryable=exception.non_retryable,
            next_retry_delay=exception.next_retry_delay,
        )
    return ApplicationError(message, type=type(exception).__name__)


def _size(failure: Failure) -> int:
    """Without details, which are few where a step fails."""
    return len(failure.message.encode()) + len(failure.stack_trace.encode()) + failure.cause.ByteSize()


DATA_CONVERTER = DataConverter(payload_converter_class=Payloads, failure_converter_class=Failures)
