"""Messages of the adapter name flags that it has."""

import json
import shlex

import pytest

from clotho.environment import EnvironmentConfig
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.atropos.main import FLAGS, with_own_flags


@pytest.mark.parametrize("flag", FLAGS.values())
def test_every_flag_is_one_of_the_adapter(flag: str) -> None:
    name, *value = shlex.split(flag)
    assert name.removeprefix("--env.") in ClothoEnvConfig.model_fields
    for given in value:
        words = given.replace("TOKENS", "1").replace("SOURCE", '"x"').replace("NAME", '"x"')
        assert set(json.loads(words)) <= {*EnvironmentConfig.model_fields, "dataset"}


def test_flags_of_the_run_command_become_its_own() -> None:
    said = with_own_flags(
        "give --tokenizer, or --max-tokens: start vLLM with --logprobs-mode x, not --runner"
    )
    assert "give --env.tokenizer_name, or --env.environment_config" in said
    assert "--logprobs-mode x, not --runner" in said
