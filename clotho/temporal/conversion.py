"""Conversion of values and failures to Temporal's payloads and back."""

from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    PayloadConverter,
)
from temporalio.exceptions import ApplicationError

from clotho.escaping import for_terminal, truncate_middle

TRACE_CHARACTERS = 1_000
"""Characters of a traceback: its last calls."""
FAILURE_BYTES = 3_500
"""A server shows nothing of a pending activity's failure of more than 4 KB, not even its message."""
BYTES_PER_CHARACTER = 4
"""Most bytes of a character in UTF-8."""

_PYDANTIC = tuple(PydanticPayloadConverter().converters.values())


class Payloads(CompositePayloadConverter):
    """The SDK's converters for pydantic, made once instead of for each workflow and task."""

    def __init__(self) -> None:
        super().__init__(*_PYDANTIC)


class Failures(DefaultFailureConverter):
    """The SDK's failure converter, with messages and tracebacks cut and escaped for display."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        try:
            super().to_failure(exception, payload_converter, failure)
        except UnicodeEncodeError:  # a surrogate on its own, somewhere in the message or those of its causes
            # the attempt that raised has left it half written
            failure.Clear()
            super().to_failure(_encodable(exception), payload_converter, failure)
        if not failure.HasField("application_failure_info"):
            return  # of an activity or a child: the failure inside it says what happened
        failure.message = truncate_middle(for_terminal(failure.message))
        failure.stack_trace = for_terminal(failure.stack_trace[-TRACE_CHARACTERS:])
        if _size(failure) > FAILURE_BYTES:
            # given up in this order: the message, which operators read, is cut last
            failure.ClearField("cause")
        if _size(failure) > FAILURE_BYTES:
            failure.ClearField("stack_trace")
            failure.message = truncate_middle(failure.message, FAILURE_BYTES // BYTES_PER_CHARACTER)


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
    """Bytes of the failure, without its few details."""
    return len(failure.message.encode()) + len(failure.stack_trace.encode()) + failure.cause.ByteSize()


DATA_CONVERTER = DataConverter(payload_converter_class=Payloads, failure_converter_class=Failures)
