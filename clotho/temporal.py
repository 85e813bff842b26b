"""The connection to a Temporal cluster, and what its namespace must know."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client, RetryConfig, WorkflowExecutionStatus
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode

from clotho.config import TemporalSettings
from clotho.errors import InvalidInput, Unavailable, bounded
from clotho.sandbox.keeper import OwnerState
from clotho.search_attributes import RUN, SEARCH_ATTRIBUTES

DEFAULT_ADDRESS = "127.0.0.1:7233"
TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}


_PYDANTIC = tuple(PydanticPayloadConverter().converters.values())


class PayloadConverter(CompositePayloadConverter):
    """The SDK's for pydantic, made once: the SDK makes one for each workflow, and another for each of its tasks."""

    def __init__(self) -> None:
        super().__init__(*_PYDANTIC)


DATA_CONVERTER = DataConverter(payload_converter_class=PayloadConverter)


async def connect(settings: TemporalSettings) -> Client:
    """Connect as the settings say, else as Temporal's own variables and profiles do.

    Raises InvalidInput where no server answers.
    """
    options: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    options.setdefault("target_host", DEFAULT_ADDRESS)
    if settings.address is not None:
        options["target_host"] = settings.address
    if settings.namespace is not None:
        options["namespace"] = settings.namespace
    # A handle that waits for a result outlives any outage of the server; workers have limits of their own.
    patient = RetryConfig(max_elapsed_time_millis=None, max_retries=0)
    try:
        return await Client.connect(**options, data_converter=DATA_CONVERTER, retry_config=patient)
    except RuntimeError as error:
        raise InvalidInput(
            f"no Temporal server answers at {options['target_host']}: start one with `clotho dev`, "
            f"or set TEMPORAL_ADDRESS ({_innermost(str(error))})"
        ) from error


def _innermost(error: str) -> str:
    """What the last of the SDK's nested errors says."""
    return bounded((re.findall(r'(?:message|error): "([^"]+)"', error) or [error])[-1], 200)


async def missing_search_attributes(client: Client) -> dict[str, str]:
    """Names and types of the search attributes that the namespace lacks.

    Raises InvalidInput with the command to run where there is no such namespace.
    """
    listing = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        known = await client.operator_service.list_search_attributes(listing)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise InvalidInput(
            f"Temporal has no namespace {client.namespace!r}; make it with: "
            f"temporal operator namespace create {client.namespace}"
        ) from error
    return {name: kind for name, kind in SEARCH_ATTRIBUTES.items() if name not in known.custom_attributes}


def creation_command(missing: Mapping[str, str]) -> str:
    """How an operator registers search attributes."""
    options = " ".join(f"--name {name} --type {kind}" for name, kind in missing.items())
    return f"temporal operator search-attribute create {options}"


async def ensure_search_attributes(client: Client) -> None:
    """Register the search attributes that are missing: a workflow that sets an unknown one hangs for ever.

    Raises InvalidInput with the command to run where the namespace is missing, or this client may not register.
    """
    missing = await missing_search_attributes(client)
    if not missing:
        return
    request = AddSearchAttributesRequest(
        namespace=client.namespace,
        search_attributes={name: TYPES[kind] for name, kind in missing.items()},
    )
    try:
        await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        if error.status == RPCStatusCode.ALREADY_EXISTS:
            return
        raise InvalidInput(
            f"namespace {client.namespace} lacks search attributes and this client may not add them "
            f"({error.message}); run: {creation_command(missing)}"
        ) from error


async def is_running(client: Client, workflow: str) -> bool:
    try:
        described = await client.get_workflow_handle(workflow).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.status is WorkflowExecutionStatus.RUNNING


class RolloutOwners:
    """Whether a rollout's workflow is open, for who keeps its sandbox alive."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def state(self, rollout: str) -> OwnerState:
        try:
            described = await self._client.get_workflow_handle(rollout).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return OwnerState.UNKNOWN
            raise Unavailable(f"Temporal can't describe {rollout}: {error.message}") from error
        return OwnerState.OPEN if described.status == WorkflowExecutionStatus.RUNNING else OwnerState.CLOSED


def run_link(ui: str, namespace: str, run: str) -> str:
    """Where the Temporal UI lists a run's workflows."""
    query = f'{RUN}="{run}"'
    return f"{ui}/namespaces/{namespace}/workflows?query={quote(query, safe='')}"


def workflow_link(ui: str, namespace: str, workflow: str, run: str | None = None) -> str:
    """Where the Temporal UI shows a workflow."""
    path = f"{ui}/namespaces/{namespace}/workflows/{quote(workflow, safe='')}"
    return f"{path}/{run}/history" if run else path
