"""Keys don't reach Atropos' prints, and misspelt names are errors."""

from pathlib import Path

import pytest
from atroposlib.envs.server_handling.server_manager import APIServerConfig
from pydantic import ValidationError

from clotho.errors import InvalidInput
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.atropos.key_options import Secrets


@pytest.mark.parametrize("flags", [["--openai.api_key", "key"], ["--openai.api_key=key"]])
def test_a_key_on_the_command_line_is_masked_and_kept(flags: list[str]) -> None:
    secrets = Secrets()
    shown = secrets.conceal_flags(["serve", *flags, "--slurm"])
    assert "key" not in " ".join(shown).replace("api_key", "")
    config = APIServerConfig(api_key="***")
    assert secrets.reveal([config])[0].api_key == "key"
    assert config.api_key == "***"


def test_keys_in_a_file_are_masked_too(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("env: {group_size: 2}\nopenai:\n- {api_key: one}\n- {api_key: two, base_url: u}\n")
    secrets = Secrets()
    shown = secrets.conceal_flags(["serve", "--config", str(file)])
    copy = Path(shown[2]).read_text()
    assert "one" not in copy
    assert "two" not in copy
    revealed = secrets.reveal([APIServerConfig(api_key="***"), APIServerConfig(api_key="***1")])
    assert [config.api_key for config in revealed] == ["one", "two"]


@pytest.mark.parametrize(
    "text",
    [
        "enviroment: {}",
        "openai: {api_kye: x}",
        "openai: [{modelname: x}, {}]",
        "openai: [{model_name: x}]",
        "openai: [x, y]",
        "- 1",
        "env: [",
        "",
        "openai:",
    ],
)
def test_unknown_sections_and_fields_are_errors(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    if text in ("", "openai:"):
        assert Secrets().conceal_flags([f"--config={file}"]) == [f"--config={file}"]
        return
    with pytest.raises(InvalidInput):
        Secrets().conceal_flags([f"--config={file}"])


def test_unknown_fields_of_the_environment_are_errors() -> None:
    with pytest.raises(ValidationError, match="groupsize"):
        ClothoEnvConfig(groupsize=4)


def test_workers_are_never_timed_out_by_default() -> None:
    config = ClothoEnvConfig(environment="tests.environments.one_file:OneFile")
    assert config.worker_timeout == -1
    assert config.run == "one-file"
