"""The adapter in the test's own process, where its hooks can be called one at a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from atroposlib.envs.server_handling.server_manager import APIServerConfig

from clotho.plugins.atropos.compat.environment import CompatEnv
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.atropos.env import ClothoEnv
from tests.atropos.adapter import GROUP_SIZE, TOKENIZER
from tests.atropos_api.service import Api
from tests.cluster import Cluster
from tests.support import ONE_FILE

Ported = TypeVar("Ported", bound=CompatEnv)


def adapter(cluster: Cluster, run: str, model_url: str, model: str = "scripted", **fields: Any) -> ClothoEnv:
    """Not opened yet. By default in chat mode, on the environment whose reward the model decides."""
    settings = {
        "run": run,
        "environment": ONE_FILE,
        "store": cluster.store_location,
        "temporal": cluster.address,
        "tokenizer_name": TOKENIZER,
        "group_size": GROUP_SIZE,
        "inference": "chat",
        "accept_chat_data": True,
        "use_wandb": False,
        **fields,
    }
    config = ClothoEnvConfig(**settings)
    server = APIServerConfig(base_url=model_url, model_name=model, api_key="x")
    return ClothoEnv(config, [server])


@asynccontextmanager
async def serving_inside(
    cluster: Cluster, run: str, model_url: str, api: Api, **fields: Any
) -> AsyncIterator[ClothoEnv]:
    """Opened and registered with `api`, which has a trainer."""
    url = f"http://127.0.0.1:{api.port}"
    env = adapter(cluster, run, model_url, rollout_server_url=url, **fields)
    async with env.opened():
        env.serving = True
        await env.setup()
        await env.register_env()
        await env.get_server_info()
        yield env


@asynccontextmanager
async def opened_inside(
    cluster: Cluster, kind: type[Ported], model_url: str, monkeypatch: pytest.MonkeyPatch, **fields: Any
) -> AsyncIterator[Ported]:
    """An environment of the in-memory design, opened and set up, in chat mode unless `fields` say otherwise.

    As Atropos' command line does, every default is given as if it were asked for.
    """
    for name, value in cluster.host_variables.items():
        monkeypatch.setenv(name, value)
    own, _ = kind.config_init()
    settings = {
        "store": cluster.store_location,
        "temporal": cluster.address,
        "tokenizer_name": TOKENIZER,
        "inference": "chat",
        "accept_chat_data": True,
        "use_wandb": False,
        **fields,
    }
    model = settings.pop("model", "scripted")
    config = kind.env_config_cls(**{**own.model_dump(), **settings})
    env = kind(config, [APIServerConfig(base_url=model_url, model_name=model, api_key="x")])
    async with env.opened():
        await env.setup()
        yield env
