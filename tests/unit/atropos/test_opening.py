"""Atropos' configuration as a run's: its servers, and what it says of reasoning."""

from collections import Counter
from pathlib import Path

import pytest
from atroposlib.envs.server_handling.server_manager import APIServerConfig, ServerBaseline

from clotho.config import Settings
from clotho.dataset_config import DatasetConfig
from clotho.errors import InvalidInput
from clotho.models.endpoint import Endpoint
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.atropos.run_setup import manifest_of, served_model, with_run_settings
from tests.support import ONE_FILE

FOLDERS = Path(__file__).parents[2] / "tasks" / "folders"
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


def test_task_folders_are_served_by_the_name_that_other_commands_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(FOLDERS.parent)
    options = {"environment": "tasks:folders", "environment_config": '{"skip_broken": true}'}
    manifest = manifest_of(ClothoEnvConfig.model_validate(options), "m")
    assert (manifest.run, manifest.environment) == ("task-folders", "task_folders")
    assert manifest.environment_config["path"] == str(FOLDERS)
    assert manifest.environment_config["skip_broken"] is True


def test_a_dataset_is_kept_with_its_absolute_path_and_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("usual", "given"):
        Path(f"{name}.jsonl").write_text('{"prompt": "Do it."}\n')
    settings = Settings(dataset=DatasetConfig(source="usual.jsonl"))

    def dataset_of(environment: str, given: dict[str, str] | None = None) -> object:
        config = {"dataset": given} if given else {}
        asked = ClothoEnvConfig(run="r", environment=environment, environment_config=config)
        return with_run_settings(manifest_of(asked, "m"), settings, asked).environment_config["dataset"]

    for given, name in ((None, "usual"), ({"source": "given.jsonl"}, "given")):
        found = DatasetConfig.model_validate(dataset_of("word_count", given))
        assert found.source == str(tmp_path / f"{name}.jsonl")
        assert found.digest is not None
    assert DatasetConfig.model_validate(dataset_of("word_count", {"source": "/x.csv", "digest": "0" * 64}))
