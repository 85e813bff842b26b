"""/collective_rpc, of which one method is known: reading the weights again, as vLLM's development mode has it."""

import asyncio
from pathlib import Path
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from clotho.embedded.model.engine import Engine
from clotho.embedded.model.http.reading import BodyReader
from clotho.embedded.model.http.refusals import Refusal
from clotho.embedded.model.http.requests import Body
from clotho.embedded.model.http.responses import RpcResults
from clotho.errors import InvalidInput


class RpcRequest(Body):
    method: Literal["reload_weights"]


class ReloadEndpoint:
    """Reads the folder that the server was started with; a client can't name another."""

    def __init__(self, engine: Engine, weights: Path, reader: BodyReader) -> None:
        self._reader = reader
        self._engine = engine
        self._weights = weights
        self._turn = asyncio.Lock()

    async def answer(self, request: Request) -> Response:
        await self._reader.read(request, RpcRequest)
        async with self._turn:
            try:
                policy = await asyncio.to_thread(self._engine.policy.with_weights, self._weights)
            except (OSError, InvalidInput) as error:
                raise Refusal(
                    409, f"the weights stay as they are: {error}", code="weights_unusable"
                ) from error
            await self._engine.replace(policy)
        return Response(RpcResults(results=[policy.version]).model_dump_json(), media_type="application/json")
