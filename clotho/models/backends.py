"""Backends of runs' endpoints; connections, renderers and capabilities are shared."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.models.answers import ANSWER_BYTES
from clotho.models.backend import Inference, ModelBackend
from clotho.models.endpoint import Endpoint
from clotho.models.model_http import ModelHTTP
from clotho.models.openai_chat import OpenAIChat
from clotho.models.rendering.renderer import Renderer
from clotho.models.rendering.rendering import Rendering, require_packages
from clotho.models.token_exact import RenderingThread, TokenExact
from clotho.models.write_ahead import FlushPolicy


class Backends:
    """Opens backends, and keeps them. `secret` returns the key in an environment variable.

    `timeout`: seconds that a whole answer may take. `bundled`: tokenizers that only have a name here.
    `answer_bytes`: the longest answer that is read, or the longest event of a stream. `first_token_seconds`: to an
    answer's first token, and of any silence later on.
    """

    def __init__(
        self,
        journal: Journal,
        secret: Callable[[str], str],
        timeout: float,
        bundled: Mapping[str, Path],
        flush_policy: FlushPolicy,
        answer_bytes: int = ANSWER_BYTES,
        first_token_seconds: float | None = None,
    ) -> None:
        self._journal = journal
        self._secret = secret
        self._timeout = timeout
        self._bundled = bundled
        self._flush_policy = flush_policy
        self._answer_bytes = answer_bytes
        self._first_token_seconds = first_token_seconds
        self._connections: dict[tuple[str, str | None], ModelHTTP] = {}
        self._chats: dict[tuple[str, str | None], OpenAIChat] = {}
        self._renderings: dict[Rendering, RenderingThread] = {}
        self._exact: dict[tuple[str, str | None, Inference, Rendering, str], TokenExact] = {}

    def at(self, endpoint: Endpoint, model: str, rendering: Rendering | None) -> ModelBackend:
        """The backend of `model` at an endpoint; without a rendering, in chat mode.

        Raises InvalidInput for an endpoint of the other mode.
        """
        inference = endpoint.inference
        run_is_chat, endpoint_is_chat = rendering is None, inference is Inference.CHAT
        if run_is_chat is not endpoint_is_chat:
            raise InvalidInput(f"inference {inference} doesn't fit the run's manifest")
        if rendering is None:
            reached = self._reached(endpoint)
            if reached not in self._chats:
                self._chats[reached] = OpenAIChat(self._connection(endpoint))
            return self._chats[reached]
        # by model, too: a server is probed with one, and may serve several
        key = (*self._reached(endpoint), inference, rendering, model)
        if key not in self._exact:
            self._exact[key] = TokenExact(
                self._connection(endpoint),
                self._rendering(rendering),
                self._journal,
                inference,
                self._flush_policy,
            )
        return self._exact[key]

    async def metrics(self, endpoint: Endpoint) -> bytes | None:
        """The page of metrics of an endpoint's server; None where it has none."""
        http = self._connection(endpoint)
        return await http.get(f"{http.root}/metrics")

    async def aclose(self) -> None:
        for connection in self._connections.values():
            await connection.aclose()

    def _connection(self, endpoint: Endpoint) -> ModelHTTP:
        reached = self._reached(endpoint)
        if reached not in self._connections:
            self._connections[reached] = ModelHTTP(
                *reached, self._timeout, self._answer_bytes, self._first_token_seconds
            )
        return self._connections[reached]

    def _reached(self, endpoint: Endpoint) -> tuple[str, str | None]:
        """The URL and the key by which a server is reached. Raises InvalidInput for a key that isn't set."""
        variable = endpoint.api_key_variable
        return endpoint.base_url, self._secret(variable) if variable else None

    def _rendering(self, rendering: Rendering) -> RenderingThread:
        if rendering not in self._renderings:
            tokenizer = str(self._bundled.get(rendering.tokenizer, rendering.tokenizer))
            self._renderings[rendering] = RenderingThread(partial(_open, tokenizer, rendering))
        return self._renderings[rendering]


def _open(tokenizer: str, rendering: Rendering) -> Renderer:
    require_packages()
    # Imported here: it takes more than a second, and workers that render nothing start without it.
    from clotho.models.rendering.resolve import open_renderer

    return open_renderer(tokenizer, **rendering.model_dump(exclude={"tokenizer"}))
