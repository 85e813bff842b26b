"""Options of `clotho run` that say what acts."""

from pathlib import Path

import pytest

from clotho.cli.run_options import RunOptions
from clotho.config import Settings
from clotho.errors import InvalidInput
from clotho.models.backend import Inference
from clotho.rollouts.agent import Agent, AgentKind

FOLDERS = Path(__file__).parent.parent / "tasks" / "folders"


def test_an_agent_needs_no_model_and_gives_the_run_its_name() -> None:
    options = RunOptions(agent=AgentKind.REPLAY, replays="first")
    manifest = options.manifest("word_count", "second", 1, Settings())
    assert (manifest.agent, manifest.model) == (Agent(kind=AgentKind.REPLAY, replays="first"), "replay")
    assert options.endpoint(None) is None


def test_the_oracle_has_a_shell_and_a_day_whatever_the_environment_offers() -> None:
    manifest = RunOptions(agent=AgentKind.ORACLE).manifest(f"tasks:{FOLDERS}", "proof", 1, Settings())
    assert manifest.environment_config["path"] == str(FOLDERS)
    assert manifest.selection.enabled == ("terminal",)
    assert manifest.tool_settings.longest_command_seconds == 86_400


@pytest.mark.parametrize(
    ("options", "model", "said"),
    [
        (RunOptions(), None, "give --model URL"),
        (RunOptions(agent=AgentKind.NOP), "http://127.0.0.1:9/v1", "no model acts"),
        (RunOptions(agent=AgentKind.ORACLE, inference=Inference.TOKENS), None, "no model acts"),
        (RunOptions(agent=AgentKind.REPLAY), None, "--agent replay and --replays RUN go together"),
        (RunOptions(agent=AgentKind.NOP, replays="first"), None, "go together"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: RunOptions, model: str | None, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        options.endpoint(model)
        options.manifest("word_count", "run", 1, Settings())
