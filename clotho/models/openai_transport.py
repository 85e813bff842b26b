"""Transport of the `openai` client: bounded, without redirects, freed of the API key.

The client by itself reads an error's whole decompressed body.
"""

import httpx2
import openai

from clotho.models.model_http import ModelHTTP

KEY = "sent by ModelHTTP"
KEPT = ("content-type", "idempotency-key", "user-agent")
"""Headers of a request that are passed on; ModelHTTP adds its own."""
DECODED = ("content-encoding", "content-length", "transfer-encoding")
"""Headers of an answer that no longer apply to its decoded body."""


class ModelTransport(httpx2.AsyncBaseTransport):
    def __init__(self, http: ModelHTTP) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {name: request.headers[name] for name in KEPT if name in request.headers}
        reply = await self._http.exchange(request.method, str(request.url), await request.aread(), headers)
        kept = [(name, value) for name, value in reply.headers.items() if name.lower() not in DECODED]
        return httpx2.Response(reply.status, headers=kept, content=reply.body, request=request)


def openai_client(http: ModelHTTP) -> openai.AsyncOpenAI:
    """A client of the server that `http` reaches. It never retries: Temporal does."""
    return openai.AsyncOpenAI(
        base_url=http.base_url,
        api_key=KEY,
        max_retries=0,
        timeout=None,
        http_client=httpx2.AsyncClient(transport=ModelTransport(http), follow_redirects=False, timeout=None),
    )
