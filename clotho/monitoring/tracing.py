"""OpenTelemetry traces of workers: one for each group, from its campaign to every turn and tool call."""

import asyncio
import threading
from collections.abc import Mapping

from temporalio.client import Interceptor

from clotho.errors import InvalidInput
from clotho.worker_settings import TracingSettings

CLOSE_SECONDS = 5.0


class Tracing:
    """Sends spans to a collector by OTLP over HTTP, in the background; spans that it can't take are dropped.

    Temporal's interceptor makes the spans; their ids travel in headers, and workflows are the same without them.
    Raises InvalidInput where the packages are missing.
    """

    def __init__(self, endpoint: str, labels: Mapping[str, str]) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from temporalio.contrib.opentelemetry import TracingInterceptor
        except ImportError as error:
            install = "install what it needs with: pip install 'clotho-rollouts[traces]'"
            raise InvalidInput(f"tracing.endpoint: {install} ({error})") from error
        self._provider = TracerProvider(resource=Resource.create({"service.name": "clotho", **labels}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        tracer = self._provider.get_tracer("clotho")
        # The command that starts a campaign isn't traced: a group's trace begins where the campaign starts it.
        self.interceptor: Interceptor = TracingInterceptor(tracer, always_create_workflow_spans=True)

    async def close(self) -> None:
        """Send what is left, for CLOSE_SECONDS at most."""
        # A thread of its own, which the process's end leaves behind: the exporter tries again for minutes.
        shutdown = threading.Thread(target=self._provider.shutdown, daemon=True)
        shutdown.start()
        await asyncio.to_thread(shutdown.join, CLOSE_SECONDS)


def open_tracing(settings: TracingSettings, labels: Mapping[str, str]) -> Tracing | None:
    return None if settings.endpoint is None else Tracing(settings.endpoint, labels)
