"""Atropos' configuration as a run's: its servers, and what it says of reasoning."""

from collections import Counter

import pytest
from atroposlib.envs.server_handling.server_manager import APIServerConfig, ServerBaseline

from clotho.atropos.config import ClothoEnvConfig
from clotho.atropos.run_setup import manifest_of, served_model
from clotho.errors import InvalidInput
from clotho.models.endpoint import Endpoint
from tests.support import ONE_FILE

CONFIG = ClothoEnvConfig(run="r", environment=ONE_FILE)


def server(url: str, model: str = "m") -> APIServerConfig:
    return APIServerConfig(base_url=url, model_name=model)


def test_a_list_of_servers_is_one_model_at_several_addresses() -> None:
    servers = [server("http://a:1/v1"), server("http://b:1/v1"), server("http://a:1/v1")]
    endpoint, model = served_model(servers, CONFIG)
    assert model == "m"
    assert [one.base_url for one in endpoint.servers] == ["http://a:1/v1", "http://b:1/v1"]
    assert served_model(server("http://a:1/v1"), CONFIG)[0].servers == (
        Endpoint(base_url="http://a:1/v1", inference=endpoint.inference),
    )


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ([], "give a model server"),
        (ServerBaseline(), "give a model server"),
        ([server("http://a:1/v1"), server("")], "give a model server"),
        ([server("http://a:1/v1"), server("http://b:1/v1", "n")], "one model, and openai names m, n"),
        ([server("http://user:key@a:1/v1")], "credentials"),
    ],
)
def test_servers_that_no_run_can_have(servers: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        served_model(servers, CONFIG)


def test_rollouts_are_spread_and_each_keeps_its_server_while_that_answers() -> None:
    endpoint = Endpoint(base_url="http://a/v1", more_urls=("http://b/v1", "http://c/v1"))
    names = [f"run/g{number:06}/r0" for number in range(300)]
    first = [endpoint.server_for(name, 1).base_url for name in names]
    assert first == [endpoint.server_for(name, 1).base_url for name in names]
    assert min(Counter(first).values()) > 70
    attempts = [endpoint.server_for(names[0], attempt).base_url for attempt in range(1, 5)]
    assert set(attempts[:3]) == {one.base_url for one in endpoint.servers}
    assert attempts[3] == attempts[0]


def test_reasoning_is_asked_of_chat_servers_and_kept_by_renderers() -> None:
    asked = {"reasoning_effort": "low", "thinking_mode": True, "custom_thinking_prompt": "Think first."}
    chat = manifest_of(CONFIG.model_copy(update={**asked, "inference": "chat"}), "m")
    assert chat.rendering is None
    assert "reasoning" in str(chat.sampling.extra_body)
    assert chat.system_prompt == "Think first."
    exact = manifest_of(CONFIG.model_copy(update=asked), "m")
    assert exact.rendering is not None and exact.rendering.thinking_mode
    assert exact.sampling.extra_body == {}
