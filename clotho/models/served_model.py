"""The name of the model that a server has, where it has only one."""

from contextlib import aclosing

from clotho.config import secret
from clotho.errors import ClothoError, InvalidInput
from clotho.escaping import for_line, truncate_middle
from clotho.models.endpoint import Endpoint
from clotho.models.model_http import ModelHTTP
from clotho.models.openai_answer import listed_models

TIMEOUT = 10.0
NAMES_SHOWN = 600


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
