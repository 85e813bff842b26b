"""Ask a model server for one turn, in a process of its own, and tell what that came to and what memory it took.

python -m tests.security.ask_model URL chat|vllm-generate
"""

import asyncio
import json
import resource
import sys
import time

from clotho.errors import ClothoError
from clotho.models.backend import Inference, TurnCall
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP
from clotho.models.openai_chat import OpenAIChat
from clotho.models.partial_turn import PartialTurn
from clotho.models.sampling import Sampling
from clotho.models.token_server import TokenRequest
from clotho.models.vllm import VLLMGenerate
from tests.support import PATIENCE_SECONDS

SAMPLING = Sampling(max_tokens=16, seed=1)


async def ask(url: str, inference: str) -> str:
    http = ModelHTTP(url, timeout=PATIENCE_SECONDS)
    try:
        if inference == Inference.CHAT:
            greeting = ChatMessage(role="user", content="Hello")
            call = TurnCall(key="k", model="m", messages=(greeting,), sampling=SAMPLING)
            turn = await OpenAIChat(http).sample_turn(call)
            return f"answered with {len(turn.message.tool_calls)} calls"
        growing = PartialTurn((1, 2), 572, budget=16)
        async for chunk in VLLMGenerate(http).stream(
            TokenRequest(key="k", model="m", prompt_ids=(1, 2), sampling=SAMPLING)
        ):
            growing.add(chunk)
        return f"answered with {len(growing.ids)} tokens"
    except ClothoError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        await http.aclose()


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    before, started = peak_mib(), time.process_time()
    came_to = asyncio.run(ask(*sys.argv[1:3]))
    print(  # noqa: T201
        json.dumps({"came_to": came_to, "mib": peak_mib() - before, "cpu": time.process_time() - started})
    )
