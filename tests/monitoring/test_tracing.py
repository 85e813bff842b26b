"""Traces that a real worker sends to a collector."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from temporalio.worker import Replayer

from clotho.identifiers.ids import campaign_id, group_of
from clotho.temporal.conversion import DATA_CONVERTER
from clotho.testing.script import Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually, start
from tests.workflows.scripts import scoring
from workflows.registry import WORKFLOWS

IDS = {"temporalWorkflowID", "temporalRunID", "temporalActivityID"}
HEADERS_BYTES = 300
"""Most that the ids of spans may add to a step's part of a history."""


class Collector:
    """Keeps the spans that are sent to it."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = ExportTraceServiceRequest()
                sent.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
                for resource in sent.resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing is logged."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1/traces"


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.http.shutdown()
    collector.http.server_close()


def workflow_of(span: Span) -> str:
    return next(each.value.string_value for each in span.attributes if each.key == "temporalWorkflowID")


async def test_a_groups_trace_leads_from_the_campaign_to_its_tool_calls(
    private_cluster: Cluster, collector: Collector
) -> None:
    await private_cluster.start_worker(CLOTHO_TRACING__ENDPOINT=collector.url)
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
        await (await start(private_cluster, "traced", url, groups=2)).result()

    def ancestors(span: Span) -> list[tuple[str, str]]:
        above = next((one for one in list(collector.spans) if one.span_id == span.parent_span_id), None)
        return [] if above is None else [(above.name, workflow_of(above)), *ancestors(above)]

    def steps(activity: str) -> list[Span]:
        return [span for span in list(collector.spans) if span.name == f"RunActivity:{activity}"]

    async def all_sent() -> bool:
        return all(
            {(workflow_of(span), len(ancestors(span))) for span in steps(activity)}
            == {("traced/g000000/r0", 3), ("traced/g000001/r0", 3)}
            for activity in ("sample_first_turn", "sample_turn", "call_tool", "verify")
        )

    await eventually(all_sent, "the spans of every step")
    for span in (*steps("sample_turn"), *steps("call_tool")):
        own, rollout = span.name.partition(":")[2], workflow_of(span)
        assert ancestors(span) == [
            (f"StartActivity:{own}", rollout),
            ("StartChildWorkflow:Rollout", group_of(rollout)),
            ("StartChildWorkflow:RolloutGroup", campaign_id("traced")),
        ]
    assert {each.key for span in collector.spans for each in span.attributes} == IDS
    assert len({span.trace_id for span in steps("call_tool")}) == 2, "a trace for each group"

    history = await private_cluster.client.get_workflow_handle("traced/g000000/r0").fetch_history()
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert scheduled
    assert all(0 < each.header.ByteSize() < HEADERS_BYTES for each in scheduled)
    await Replayer(workflows=WORKFLOWS, data_converter=DATA_CONVERTER).replay_workflow(history)


async def test_a_collector_that_is_away_holds_nothing_up(private_cluster: Cluster) -> None:
    worker = await private_cluster.start_worker(CLOTHO_TRACING__ENDPOINT="http://127.0.0.1:1/v1/traces")
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
        done = await (await start(private_cluster, "untraced", url)).result()
    assert done.scored == 1
    worker.terminate()
    assert await asyncio.wait_for(worker.wait(), PATIENCE_SECONDS) == 0
