"""A connection to a model server that is closed, as by a worker that has drained."""

from clotho.models.model_http import ModelHTTP
from clotho.testing.script import Conversation, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving

SCRIPT = Script(conversations=(Conversation(variants=((ScriptedTurn(content="Done."),),)),))


async def test_a_request_after_the_closing_opens_it_anew() -> None:
    async with serving(ScriptedModel(SCRIPT)) as url:
        connection = ModelHTTP(url)
        try:
            first = await connection.get(f"{url}/models")
            await connection.aclose()
            assert await connection.get(f"{url}/models") == first
        finally:
            await connection.aclose()
