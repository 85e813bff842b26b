"""Atropos' own trainer and environments, which know a URL alone: the one that is printed carries the token."""

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from atroposlib.envs.base import BaseEnv

from clotho.plugins.atropos.trainer_api import TrainerApi
from tests.atropos_api.service import Api, group, number_of, running
from tests.support import PATIENCE_SECONDS, eventually


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The requests of the trainer that comes with atroposlib; the rest of its package would import PyTorch."""
    found = importlib.util.find_spec("example_trainer")
    assert found is not None
    package, config = ModuleType("example_trainer"), ModuleType("example_trainer.config")
    package.__path__ = list(found.submodule_search_locations or ())
    vars(config)["TrainingConfig"] = SimpleNamespace
    monkeypatch.setitem(sys.modules, "example_trainer", package)
    monkeypatch.setitem(sys.modules, "example_trainer.config", config)
    monkeypatch.delitem(sys.modules, "example_trainer.api", raising=False)
    return importlib.import_module("example_trainer.api")


async def printed_url(api: Api) -> str:
    """The address with its token, as the server says it."""

    async def said() -> str | None:
        lines = api.process.output.splitlines()
        return next((line.rpartition(" ")[2] for line in lines if line.startswith("with its token")), None)

    return await eventually(said, "the address with its token")


async def test_a_stock_trainer_and_environment_work_with_the_printed_url(
    tmp_path: Path, trainer: ModuleType
) -> None:
    async with running(tmp_path) as api:
        url = await printed_url(api)
        assert url.startswith("http://clotho:")
        config = SimpleNamespace(
            atropos_url=url,
            batch_size=4,
            gradient_accumulation_steps=1,
            seq_len=64,
            training_steps=3,
            checkpoint_interval=0,
            save_path="checkpoints",
            wandb_group=None,
            wandb_project=None,
        )
        assert await asyncio.to_thread(trainer.check_atropos_api, url)
        await asyncio.to_thread(trainer.register_trainer, config)
        assert (await asyncio.to_thread(trainer.get_batch, url))["batch"] is None
        env: Any = SimpleNamespace(
            config=SimpleNamespace(
                rollout_server_url=url,
                max_token_length=64,
                wandb_name="stock",
                inference_weight=1.0,
                min_batch_allocation=None,
                group_size=4,
            ),
            _post_json_with_compression=lambda *sent: BaseEnv._post_json_with_compression(None, *sent),
        )
        env.env_id = (await BaseEnv._register_env(env))["env_id"]
        await BaseEnv._send_scored_data_to_api(env, group(7, images=["x" * 2_000]))
        batch = (await asyncio.to_thread(trainer.get_batch, url))["batch"]
        assert list(map(number_of, batch)) == [7]


async def test_the_token_outlives_its_server(tmp_path: Path) -> None:
    """A trainer goes on with the next process at the same port."""
    async with running(tmp_path) as api:
        url = await printed_url(api)
        await api.restart()
        assert await printed_url(api) == url
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as stranger:
            assert (await stranger.get(f"{api.url}/info")).status_code == 401
            assert (await stranger.get(f"{url}/info")).status_code == 200
        adapters = TrainerApi(api.url)
        assert (await adapters.get("/status"))["queue_size"] == 0
        await adapters.aclose()


async def test_none_is_asked_for_where_it_was_switched_off(tmp_path: Path) -> None:
    client = httpx.AsyncClient(timeout=PATIENCE_SECONDS)
    async with running(tmp_path, arguments=("--no-token",)) as api, client as stranger:
        assert (await stranger.get(f"{api.url}/info")).status_code == 200
        assert "with its token" not in api.process.output
