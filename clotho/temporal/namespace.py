"""Search attributes of a namespace, registered before workflows run in it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from clotho.errors import InvalidInput
from clotho.temporal.search_attributes import SEARCH_ATTRIBUTES

UNMAPPED = "no mapping defined for search attribute"
"""A part of the refusal of a server that hasn't heard yet of the attributes that another one registered."""
OUTAGES = frozenset(
    {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED}
)
"""They say nothing of what this client may do."""
MAPPED_SECONDS = 30.0
LOOK_SECONDS = 0.25

T = TypeVar("T")


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
    """The command that registers search attributes."""
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
        search_attributes={
            name: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{kind.upper()}")
            for name, kind in missing.items()
        },
    )
    try:
        await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        # Another worker, which started at the same time, has registered them.
        if error.status == RPCStatusCode.ALREADY_EXISTS:
            return
        if error.status in OUTAGES:
            raise
        raise InvalidInput(
            f"namespace {client.namespace} lacks search attributes and this client may not add them "
            f"({error.message}); run: {creation_command(missing)}"
        ) from error


async def until_mapped(start: Callable[[], Awaitable[T]]) -> T:
    """Start a workflow with search attributes; try again for 30 s where these were registered a moment ago.

    The servers of a cluster read the attributes of a namespace from time to time.
    """
    deadline = asyncio.get_running_loop().time() + MAPPED_SECONDS
    while True:
        try:
            return await start()
        except RPCError as error:
            if UNMAPPED not in error.message or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(LOOK_SECONDS)
