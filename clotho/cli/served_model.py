"""Which model a server has, where it has one only."""

import httpx

from clotho.config import secret
from clotho.entries.run import Endpoint
from clotho.errors import ClothoError, InvalidInput, bounded
from clotho.inference.openai_answer import read_model_list
from clotho.inference.provider_errors import refusal

TIMEOUT = 10.0
NAMES_SHOWN = 600


async def only_model(endpoint: Endpoint) -> str:
    """The one model that the server lists. Raises InvalidInput naming those it lists, or why there is no list."""
    url = f"{endpoint.base_url}/models"
    key = secret(endpoint.api_key_variable) if endpoint.api_key_variable else None
    try:
        models = await _listed(url, key)
    except (httpx.HTTPError, ClothoError) as error:
        text = str(error).replace(key, "[API key]") if key else str(error)
        reason = text or type(error).__name__
        raise InvalidInput(f"{url} lists no models ({reason}): check --model, or give --model-name") from None
    if len(models) != 1:
        names = bounded(", ".join(models), NAMES_SHOWN) or "none"
        raise InvalidInput(f"{url} lists {len(models)} models, give one with --model-name: {names}")
    return models[0]


async def _listed(url: str, key: str | None) -> tuple[str, ...]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(timeout=TIMEOUT, follow_redirects=True) as http:
        answer = await http.get(url, headers=headers)
    if not answer.is_success:
        raise refusal(answer.status_code, answer.headers, answer.text)
    return read_model_list(answer.content)
