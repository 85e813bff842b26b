"""What environments of the in-memory design import, call and configure is there, by the old names."""

from typing import Any

import pytest
from pydantic import ValidationError

from atropos_adapter import (
    AgentResult,
    HermesAgentBaseEnv,
    HermesAgentEnvConfig,
    HermesAgentLoop,
    ToolContext,
)
from clotho.errors import InvalidInput
from clotho.plugins.atropos.compat.hooks import current_row, rows_through
from clotho.plugins.containers.config import DockerConfig

DEFAULTS = {
    "enabled_toolsets": None,
    "disabled_toolsets": None,
    "distribution": None,
    "max_agent_turns": 30,
    "system_prompt": None,
    "agent_temperature": 1.0,
    "terminal_backend": "local",
    "terminal_timeout": 120,
    "terminal_lifetime": 3600,
    "dataset_name": None,
    "dataset_split": "train",
    "prompt_field": "prompt",
    "tool_pool_size": 128,
    "tool_call_parser": "hermes",
    "extra_body": None,
    "default_result_size_chars": 100_000,
    "turn_budget_chars": 200_000,
    "preview_size_chars": 1_500,
    "tool_result_overrides": None,
}
OVERRIDDEN = ("setup", "get_next_item", "format_prompt", "compute_reward", "evaluate", "wandb_log")
CALLED = ("_resolve_tools_for_group", "_use_managed_server", "collect_trajectories", "collect_trajectory")


def test_fields_have_their_old_names_and_defaults() -> None:
    config = HermesAgentEnvConfig()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS
    assert HermesAgentEnvConfig(enabled_toolsets="terminal,file").enabled_toolsets == ["terminal", "file"]


@pytest.mark.parametrize("field", [{"terminal_backend": "cloud"}, {"agent_temprature": 1.0}])
def test_what_cannot_be_had_is_an_error(field: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(field))):
        HermesAgentEnvConfig(**field)


@pytest.mark.parametrize("backend", ["local", "docker", "modal", "daytona", "ssh", "singularity"])
def test_every_old_backend_stands_for_one_that_is_there(backend: str) -> None:
    config = HermesAgentEnvConfig(terminal_backend=backend)
    assert (config.terminal_backend, config.sandbox_backend.name) == (backend, "local")


def test_methods_and_results_have_their_old_names() -> None:
    assert all(callable(getattr(HermesAgentBaseEnv, name)) for name in (*OVERRIDDEN, *CALLED))
    result = AgentResult(
        messages=[], turns_used=1, finished_naturally=True, reasoning_per_turn=[None], tool_errors=[]
    )
    assert result.managed_state is None


def test_a_workspace_is_that_of_a_loop_that_has_run() -> None:
    with pytest.raises(InvalidInput, match="no HermesAgentLoop has run under the task id 'unknown'"):
        ToolContext("unknown")
    with pytest.raises(InvalidInput, match="give HermesAgentLoop a task_id"):
        HermesAgentLoop(server=None, tool_schemas=[], valid_tool_names=set())


def branch_group(*scores: float) -> dict[str, Any]:
    rows = range(len(scores))
    return {
        "group_id": "run/i-a.0",
        "tokens": [[row] for row in rows],
        "masks": [[row] for row in rows],
        "scores": list(scores),
        "advantages": None,
        "messages": [[] for _ in rows],
    }


async def test_each_rollouts_row_passes_through_the_hook() -> None:
    async def halve(item: str) -> tuple[dict[str, Any] | None, list[Any]]:
        row = current_row()
        return {**row, "scores": row["scores"] / 2, "overrides": {"item": item}}, [row["tokens"][0]]

    (first, second), further = await rows_through(
        halve, [branch_group(1.0, 0.5), branch_group(1.0, 0.5)], "a"
    )
    assert first == branch_group(0.5, 0.25) | {"overrides": [{"item": "a"}] * 2}
    assert second == branch_group(0.5, 0.25), "a rollout has one score in all branch groups"
    assert further == [0, 1]


async def test_a_row_that_the_hook_withholds_withholds_its_group() -> None:
    async def choose(_: str) -> tuple[dict[str, Any] | None, list[Any]]:
        row = current_row()
        return (row if row["scores"] else None), []

    assert await rows_through(choose, branch_group(1.0, 0.0), "a") == (None, [])
    with pytest.raises(InvalidInput, match="HermesAgentLoop runs manual rollouts"):
        current_row()


def test_commands_run_in_containers_where_the_environment_names_docker_and_an_image() -> None:
    config = HermesAgentEnvConfig(terminal_backend="docker", image="debian:12")
    assert config.sandbox_backend == DockerConfig(image="debian:12")
