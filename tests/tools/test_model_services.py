"""Tools that call other models, on a local server that answers as providers do."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext
from clotho.errors import ServiceRejected, ServiceUnavailable
from clotho.failure_policy import StepAction, policy_for
from clotho.plugin_settings import sections_of
from clotho.plugins.services import asking
from clotho.plugins.services.asking import Asker
from clotho.plugins.services.image_generate import ImageGenerate
from clotho.plugins.services.settings import ModelService, ModelServices
from clotho.plugins.web.fetching import Fetcher
from clotho.testing import ScriptedCall, sandboxed_context
from clotho.tools.dispatch import Dispatcher
from clotho.tools.tool import CallContext, Dispatched, ToolOutcome, ToolSettings
from tests.tools.calls import REGISTRY, ToolCalls, fields
from tests.tools.model_service import PNG, ModelServer, completion, images

KEY = "the-key-of-the-provider"
DATA = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
SEEN: dict[str, Any] = {"image_url": DATA, "question": "What is it?"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()


class Parts:
    """Parts of a call, each journalled under its name."""

    def __init__(self) -> None:
        self.kept: dict[str, ToolOutcome] = {}

    async def once(self, name: str, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
        if name not in self.kept:
            self.kept[name] = await work()
        return self.kept[name]


async def called(
    services: ModelServices,
    tool: str,
    key: str | None = KEY,
    parts: Parts | None = None,
    state: dict[str, Any] | None = None,
    **arguments: Any,
) -> Dispatched:
    once = (parts or Parts()).once
    context = CallContext(
        "r", ("call", "0"), "call", ToolSettings(plugins=sections_of(services)), state or {}, None, once=once
    )
    dispatcher = Dispatcher(REGISTRY, lambda name: key)
    return await dispatcher.run(tool, json.dumps(arguments), REGISTRY.names, context)


async def seen(server: ModelServer, **more: Any) -> Dispatched:
    services = ModelServices(vision=server.service("sees", key="VISION_KEY", extra_body={"max_tokens": 7}))
    return await called(services, "vision_analyze", **{**SEEN, **more})


async def test_an_image_and_a_question_are_sent_to_the_model_that_sees(server: ModelServer) -> None:
    server.body = completion("A red dot.")
    assert fields(await seen(server)) == {"success": True, "analysis": "A red dot."}
    [(path, headers, given)] = server.asked
    assert path == "/v1/chat/completions" and headers["authorization"] == f"Bearer {KEY}"
    assert headers["idempotency-key"] and given["model"] == "sees" and given["max_tokens"] == 7
    text, image = given["messages"][0]["content"]
    assert "What is it?" in text["text"] and image == {"type": "image_url", "image_url": {"url": DATA}}


@pytest.mark.parametrize("status", [402, 408, 429, 500, 503, 302])
async def test_an_outage_is_retried_and_never_a_result(server: ModelServer, status: int) -> None:
    server.status, server.headers = status, {"Retry-After": "7200"}
    server.body = {"error": {"message": f"no more of {KEY}", "type": "rate_limit"}}
    with pytest.raises(ServiceUnavailable, match=f"HTTP {status}") as raised:
        await seen(server)
    assert raised.value.retry_after == timedelta(hours=1) and KEY not in str(raised.value)
    assert len(server.asked) == 1
    assert policy_for("ServiceUnavailable").step is StepAction.RETRY


async def test_a_server_that_is_not_there_is_an_outage() -> None:
    services = ModelServices(vision=ModelService(url="http://127.0.0.1:1/v1", model="sees"))
    with pytest.raises(ServiceUnavailable, match="can't be reached"):
        await called(services, "vision_analyze", **SEEN)


@pytest.mark.parametrize(
    "body",
    [b"<html>", [], {}, {"choices": []}, {"choices": [{"message": None}]}, b" " * (asking.MOST_BYTES + 1)],
)
async def test_what_is_no_answer_is_an_outage(server: ModelServer, body: Any) -> None:
    server.body = body
    with pytest.raises(ServiceUnavailable):
        await seen(server)


async def test_a_packed_answer_is_not_unpacked(server: ModelServer) -> None:
    server.headers, server.body = {"content-encoding": "gzip"}, b"\x1f\x8b"
    with pytest.raises(ServiceUnavailable, match="packs"):
        await seen(server)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        *((status, "refused") for status in (401, 403, 404)),
        *((400, said) for said in ("The model `sees` does not exist", "model_not_found")),
    ],
)
async def test_a_refused_key_or_a_model_that_is_not_there_fails_the_run(
    server: ModelServer, status: int, message: str
) -> None:
    server.status, server.body = status, {"error": {"message": message}}
    with pytest.raises(ServiceRejected, match=f"HTTP {status}"):
        await seen(server)
    with pytest.raises(ServiceRejected, match="VISION_KEY is not set"):
        await seen(server, key=None)


async def test_a_refused_request_is_an_answer_for_the_model(server: ModelServer) -> None:
    server.status = 400
    server.body = {"error": {"message": f"Your request violates our policy. {KEY}", "code": "content_policy"}}
    parts = Parts()
    for _ in range(2):
        done = await seen(server, parts=parts)
        assert "violates our policy" in fields(done)["error"] and done.failure is not None
        assert KEY not in done.content
    assert len(server.asked) == 1


WRONG_SETTINGS = (
    "Incorrect API key provided",
    "API key not valid. Please pass a valid API key.",
    "Your credit balance is too low to access the API",
    "Unsupported parameter: 'max_tokens' is not supported with this model",
    "Extra inputs are not permitted",
)


@pytest.mark.parametrize("message", WRONG_SETTINGS)
async def test_wrong_settings_that_are_told_as_a_wrong_request_are_mended_and_asked_again(
    server: ModelServer, message: str
) -> None:
    server.status, server.body = 400, {"error": {"message": message}}
    parts = Parts()
    with pytest.raises(ServiceRejected, match="HTTP 400"):
        await seen(server, parts=parts)
    server.status, server.body = 200, completion("A red dot.")
    assert fields(await seen(server, parts=parts))["analysis"] == "A red dot."


async def test_something_else_that_is_not_there_is_told(server: ModelServer) -> None:
    server.status, server.body = 400, {"error": {"message": "The image's URL does not exist"}}
    assert "URL does not exist" in fields(await seen(server))["error"]


async def test_halves_of_characters_within_a_string_of_json_are_told(server: ModelServer) -> None:
    services = ModelServices(clarify=server.service("user"))
    done = await called(services, "clarify", question="Which?", choices='["\\ud800"]')
    assert "Invalid JSON in tool arguments" in fields(done)["error"] and not server.asked


async def test_a_wrong_request_of_unknown_cause_is_told_and_not_kept_as_paid(server: ModelServer) -> None:
    server.status, server.body = 422, {"error": {"message": "no"}}
    parts = Parts()
    assert "no" in fields(await seen(server, parts=parts))["error"] and not parts.kept


async def test_a_key_that_a_server_repeats_is_not_shown(server: ModelServer) -> None:
    server.body = completion(f"The key is {KEY}.")
    assert KEY not in (await seen(server)).content


async def test_an_answer_is_paid_once(server: ModelServer) -> None:
    parts = Parts()
    first, second = await seen(server, parts=parts), await seen(server, parts=parts)
    assert first == second and len(server.asked) == 1
    await seen(server)
    assert server.asked[0][1]["idempotency-key"] == server.asked[1][1]["idempotency-key"]


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("data:image/png;base64,AAAA", "isn't an image"),
        ("data:image/png,abc", "base 64"),
        ("data:image/png;base64,!!!", "damaged"),
        ("http://169.254.169.254/latest", "isn't a public one"),
        ("http://127.0.0.1:1/x.png", "isn't a public one"),
    ],
)
async def test_what_is_no_image_is_told_and_costs_nothing(server: ModelServer, image: str, told: str) -> None:
    assert told in fields(await seen(server, image_url=image))["error"] and not server.asked


async def test_images_are_read_from_the_sandbox_and_written_into_it(
    server: ModelServer, calls: ToolCalls
) -> None:
    calls.settings = ToolSettings(plugins=sections_of(server.services()))
    made = fields(await calls.run("image_generate", {"prompt": "a dot", "aspect_ratio": "square"}))
    assert made["success"] and server.asked[0][2]["size"] == "1024x1024"
    assert (await calls.context().sandbox.read_file(made["image"], 10_000)).content == PNG
    looked = await calls.run("vision_analyze", {"image_url": made["image"], "question": "What?"})
    assert fields(looked)["success"]
    assert server.asked[1][2]["messages"][0]["content"][1]["image_url"]["url"] == DATA
    absent = await calls.run("vision_analyze", {"image_url": "none.png", "question": "What?"})
    assert "can't be read" in fields(absent)["error"]


async def test_an_image_that_is_none_is_told(server: ModelServer, calls: ToolCalls) -> None:
    calls.settings = ToolSettings(plugins=sections_of(server.services()))
    for made, image in enumerate((images(b64_json="AAAA"), images(url="http://10.0.0.1/x.png")), 1):
        server.body = image
        assert fields(await calls.run("image_generate", {"prompt": "a dot"}))["error"]
        assert calls.state["services"] == {"calls": made}


async def test_an_image_that_a_provider_refuses_to_make_is_a_tool_error(
    server: ModelServer, calls: ToolCalls
) -> None:
    calls.settings = ToolSettings(plugins=sections_of(server.services()))
    server.status, server.body = 400, {"error": {"message": "blocked", "code": "content_policy"}}
    done = await calls.run("image_generate", {"prompt": "a dot"})
    assert done.failure is not None and "refused the request" in done.failure.error


async def test_an_image_is_fetched_once(server: ModelServer, calls: ToolCalls) -> None:
    """Its URL is good for a while, and another attempt may come later."""
    asked: list[str] = []

    async def answered(request: web.Request) -> web.Response:
        asked.append(request.path)
        if len(asked) > 1:
            raise web.HTTPForbidden
        return web.Response(body=PNG)

    app = web.Application()
    app.router.add_get("/image.png", answered)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.body = images(url=f"http://127.0.0.1:{runner.addresses[0][1]}/image.png")
    tool = ImageGenerate(Fetcher(allowed=lambda address: True))
    calls.settings = ToolSettings(plugins=sections_of(server.services()))
    context = replace(calls.context(), once=Parts().once)
    for _ in range(2):
        assert json.loads((await tool.run({"prompt": "a dot"}, context)).content)["success"]
    await runner.cleanup()


async def test_several_models_answer_and_one_puts_it_together(server: ModelServer) -> None:
    done = fields(await called(server.services(), "mixture_of_agents", user_prompt="Why?"))
    assert done == {"success": True, "response": "one says: Why?", "models_used": ["one", "two"]}
    assert [given["model"] for _, _, given in server.asked[2:]] == ["one"]
    together = server.asked[2][2]["messages"][0]["content"]
    assert "one says: Why?" in together and "two says: Why?" in together


async def test_a_model_that_refuses_is_left_out_and_one_that_fails_is_asked_again(
    server: ModelServer,
) -> None:
    services, parts = server.services(), Parts()
    server.by_model["two"] = 503, {}
    with pytest.raises(ServiceUnavailable):
        await called(services, "mixture_of_agents", parts=parts, user_prompt="Why?")
    while not parts.kept:  # the other model's answer, which may come after the failure
        await asyncio.sleep(0.01)
    server.by_model["two"] = 400, {"error": {"message": "no"}}
    done = fields(await called(services, "mixture_of_agents", parts=parts, user_prompt="Why?"))
    assert done["models_used"] == ["one"]
    first = [given for _, _, given in server.asked if given["model"] == "one" and len(given["messages"]) == 1]
    assert len(first) == 1
    server.by_model["one"] = server.by_model["two"]
    refused = fields(await called(services, "mixture_of_agents", user_prompt="Why?"))
    assert "No model answered" in refused["error"]


async def test_answers_that_are_not_put_together_count(server: ModelServer) -> None:
    parts, answer = Parts(), server.answer

    def refusing(path: str, given: dict[str, Any]) -> tuple[int, Any]:
        together = len(given["messages"]) > 1
        return (400, {"error": {"message": "no"}}) if together else answer(path, given)

    server.answer = refusing  # type: ignore[method-assign]
    done = await called(server.services(), "mixture_of_agents", parts=parts, user_prompt="Why?")
    assert "refused the request" in fields(done)["error"] and done.state == {"services": {"calls": 3}}


async def test_a_model_may_answer_in_place_of_the_user(server: ModelServer) -> None:
    services = ModelServices(clarify=server.service("user"))
    done = await called(services, "clarify", question="Wool or flax?", choices=["wool", "flax"])
    assert fields(done)["user_response"] == "user says: Wool or flax?\n- wool\n- flax"


async def test_a_rollout_makes_so_many_calls_and_no_more(server: ModelServer) -> None:
    services = server.services(max_calls=4)
    done = await called(services, "vision_analyze", **SEEN)
    assert done.state == {"services": {"calls": 1}}
    done = await called(services, "mixture_of_agents", state=done.state, user_prompt="Why?")
    assert done.state == {"services": {"calls": 4}} and len(server.asked) == 4
    further: dict[str, dict[str, Any]] = {
        "vision_analyze": SEEN,
        "image_generate": {"prompt": "x"},
        "mixture_of_agents": {"user_prompt": "x"},
    }
    for tool, arguments in further.items():
        refused = await called(services, tool, state=done.state, **arguments)
        assert "are used up" in fields(refused)["error"] and len(server.asked) == 4


@pytest.mark.parametrize("url", ["ftp://x/v1", "https://me:secret@x/v1", "x"])
def test_a_url_that_is_none_or_has_a_password_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        ModelService(url=url, model="m")


class Looks(Environment):
    """A task with a model that sees."""

    async def get_next_item(self) -> Item | None:
        return {"prompt": "Look."}

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float("sees says" in ctx.call_tool("vision_analyze", SEEN))


def test_an_environment_names_its_models(server: ModelServer) -> None:
    config = EnvironmentConfig(enabled_toolsets=("moa", "vision"), plugins=sections_of(server.services()))
    with sandboxed_context(Looks(config)) as task:
        task.play(ScriptedCall(name="mixture_of_agents", arguments={"user_prompt": "Why?"}))
        assert "one says: Why?" in str(task.result.messages)
        assert task.reward().score == 1.0


async def test_without_a_model_a_tool_is_not_offered_and_says_so() -> None:
    for tool in ("vision_analyze", "image_generate", "mixture_of_agents"):
        found = REGISTRY.get(tool)
        assert found is not None and "set services." in str(found.missing(ToolSettings()))
    assert "set services.vision" in fields(await called(ModelServices(), "vision_analyze", **SEEN))["error"]


class Judged(Environment):
    """A task whose judge is asked twice the same, and once something else."""

    async def get_next_item(self) -> Item | None:
        return {"prompt": "Say something."}

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        said = [ctx.ask_judge(prompt) for prompt in ("Is it?", "Is it?", "Was it?")]
        return float(said == ["judges says: Is it?"] * 2 + ["judges says: Was it?"])


def judged_by(server: ModelServer) -> dict[str, Any]:
    return sections_of(ModelServices(judge=server.service("judges")))


def test_a_reward_may_ask_a_judge(server: ModelServer) -> None:
    config = EnvironmentConfig(enabled_toolsets=(), plugins=judged_by(server))
    with sandboxed_context(Judged(config)) as task:
        assert task.reward().score == 1.0
    keys = [headers["idempotency-key"] for _, headers, _ in server.asked]
    assert len(set(keys)) == 3


async def verdict(server: ModelServer, parts: Parts) -> str:
    asker = Asker(parts.once, lambda name: KEY, "the-rollout")
    return await asker.verdict(server.service("judges"), "Is it?", 0)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (413, {"message": "no"}),
        (400, {"message": "This model's maximum context length is 8 tokens", "code": None}),
        (400, {"message": "no", "code": "context_length_exceeded"}),
        (400, {"message": "no", "code": "content_filter"}),
        (403, {"message": "Your input was flagged"}),
    ],
)
async def test_a_judge_that_refuses_the_prompt_says_nothing_once(
    server: ModelServer, status: int, error: dict[str, Any]
) -> None:
    server.status, server.body = status, {"error": error}
    parts = Parts()
    assert [await verdict(server, parts) for _ in range(2)] == ["", ""] and len(server.asked) == 1


@pytest.mark.parametrize("body", [completion("Ye", "content_filter"), completion(None, refusal="I can't")])
async def test_a_judge_whose_answer_is_withheld_says_nothing_once(server: ModelServer, body: Any) -> None:
    server.body = body
    parts = Parts()
    assert [await verdict(server, parts) for _ in range(2)] == ["", ""] and len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "message"), [(400, "no"), (422, "no"), *((400, said) for said in WRONG_SETTINGS)]
)
async def test_no_other_refusal_of_a_judge_is_a_verdict(
    server: ModelServer, status: int, message: str
) -> None:
    server.status, server.body = status, {"error": {"message": message}}
    parts = Parts()
    with pytest.raises(ServiceRejected):
        await verdict(server, parts)
    server.status, server.body = 200, completion("Yes.")
    assert await verdict(server, parts) == "Yes."


@pytest.mark.parametrize("body", [completion(None), completion(" "), completion("Y", "length")])
async def test_an_answer_of_a_judge_that_is_empty_or_cut_off_is_an_outage(
    server: ModelServer, body: Any
) -> None:
    server.body = body
    parts = Parts()
    with pytest.raises(ServiceUnavailable, match="empty or cut off"):
        await verdict(server, parts)
    server.body = completion("Yes.")
    assert await verdict(server, parts) == "Yes."


@pytest.mark.slow
def test_a_reward_without_a_judge_or_with_one_that_fails(server: ModelServer) -> None:
    with sandboxed_context(Judged(EnvironmentConfig(enabled_toolsets=()))) as task:
        assert task.verifier().ask_judge("Is it?") is None
    config = EnvironmentConfig(enabled_toolsets=(), plugins=judged_by(server))
    for status, failure in ((503, ServiceUnavailable), (400, ServiceRejected)):
        server.status, server.body = status, {"error": {"message": "no"}}
        with sandboxed_context(Judged(config)) as task, pytest.raises(failure):
            task.reward()
