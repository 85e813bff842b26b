"""The models that a server lists, and the one that it has where it has only one."""

from contextlib import aclosing

from pydantic import BaseModel, JsonValue, ValidationError

from clotho.config import secret
from clotho.errors import ClothoError, InvalidInput, ModelRejected
from clotho.escaping import for_line, truncate_middle
from clotho.models.endpoint import Endpoint
from clotho.models.model_http import ModelHTTP

TIMEOUT = 10.0
NAMES_SHOWN = 600


class ListedModel(BaseModel):
    """A model in a server's list."""

    id: str
    max_model_len: JsonValue = None


class _ModelList(BaseModel):
    data: tuple[ListedModel, ...]


async def listed_models(http: ModelHTTP, base_url: str) -> tuple[ListedModel, ...] | None:
    """The models that a server lists; None where it has no list. Raises ModelRejected for anything else."""
    body = await http.get(f"{base_url}/models")
    try:
        return _ModelList.model_validate_json(body).data if body is not None else None
    except ValidationError:
        # not an outage: a web page at the wrong URL would be asked for ever
        raise ModelRejected("no OpenAI-compatible API answers here: such URLs mostly end in /v1") from None


async def only_model(endpoint: Endpoint) -> str:
    """The one model that the server lists. Raises InvalidInput naming those it lists, or why there is no list."""
    url = f"{endpoint.base_url}/models"
    key = secret(endpoint.api_key_variable) if endpoint.api_key_variable else None
    try:
        async with aclosing(ModelHTTP(endpoint.base_url, key, TIMEOUT)) as http, http.errors():
            models = [model.id for model in await listed_models(http, endpoint.base_url) or ()]
    except ClothoError as error:
        raise InvalidInput(f"{url} lists no models ({error}): check --model, or give --model-name") from None
    if len(models) != 1:
        names = truncate_middle(for_line(", ".join(models)), NAMES_SHOWN) or "none"
        raise InvalidInput(f"{url} lists {len(models)} models, give one with --model-name: {names}")
    return models[0]
